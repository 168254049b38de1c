"""A tool asks a small SQLite database through aiosqlite.

state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL make_towns
numbers: TOWNS=100..400
load: TOOL callers 2..3 calls 5..8 pause 10..40
"""

import sqlite3

import aiosqlite


def make_towns() -> None:
    with sqlite3.connect(FOLDER / "towns.db") as database:
        database.execute("create table if not exists towns (id integer primary key, souls integer)")
        database.executemany("insert or replace into towns values (?, ?)", [(n, n * 911 % 5003) for n in range(TOWNS)])


make_towns()


@server.tool()
async def TOOL(text: str) -> str:
    async with (
        aiosqlite.connect(FOLDER / "towns.db") as database,
        database.execute("select souls from towns where id = ?", (len(text) % TOWNS,)) as cursor,
    ):
        row = await cursor.fetchone()
    return f"{text}: {row[0] if row else 0}"
