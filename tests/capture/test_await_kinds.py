"""What a suspended call of a library waits for, where no hook says so."""

from __future__ import annotations

import pytest

from mcp_probe.capture.await_kinds import kind_of


@pytest.mark.parametrize(
    ("module", "function", "kind"),
    [
        ("sqlalchemy.engine.base", "Connection.execute", "db"),
        ("asyncpg.pool", "Pool._acquire", "db"),
        ("psycopg.cursor", "Cursor.execute", "db"),
        ("psycopg_pool.pool", "ConnectionPool.getconn", "db"),
        ("psycopg2.extras", "DictCursor.execute", "db"),
        ("redis.client", "Redis.execute_command", "db"),
        ("aiosqlite.core", "Connection._execute", "db"),
        ("sqlite3", "Cursor.execute", "db"),
        ("pymongo.collection", "Collection.find_one", "db"),
        ("motor.core", "AgnosticCollection.find_one", "db"),
        ("aiomysql.cursors", "Cursor.execute", "db"),
        ("pymysql.cursors", "Cursor.execute", "db"),
        ("mysql.connector.cursor", "MySQLCursor.execute", "db"),
        ("clickhouse_connect.driver.client", "Client.query", "db"),
        ("clickhouse_driver.client", "Client.execute", "db"),
        ("neo4j._sync.work.session", "Session.run", "db"),
        ("cassandra.cluster", "Session.execute", "db"),
        ("snowflake.connector.cursor", "SnowflakeCursor.execute", "db"),
        ("oracledb.cursor", "Cursor.execute", "db"),
        ("valkey.client", "Valkey.execute_command", "db"),
        ("peewee", "Database.execute_sql", "db"),
        ("subprocess", "Popen.wait", "subprocess"),
        ("asyncio.subprocess", "Process.wait", "subprocess"),
        ("asyncio.base_subprocess", "BaseSubprocessTransport._wait", "subprocess"),
        ("trio._subprocess", "Process.wait", "subprocess"),
        ("server", "query", None),
    ],
)
def test_a_librarys_function_tells_what_is_waited_for(module: str, function: str, kind: str | None) -> None:
    assert kind_of(module, function) == kind
