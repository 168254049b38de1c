"""The servers: how each is started on each transport, what it works on, and what it is asked.

`holding` is asked first in each round, `quick` and pings while it is under way. `blocks` says what the server's code
does, read by hand: whether a holding call runs on the event loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.field.servers import make_repository
from tools.field import backends

Transport = Literal["stdio", "HTTP", "stateless HTTP", "SSE"]


@dataclass(frozen=True, slots=True)
class Ask:
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """A server ready to be started. ``path`` is where it serves HTTP."""

    holding: Ask
    quick: Ask
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = "/mcp"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One server on one transport. ``lock`` is the file in requirements/ and the folder in .envs/."""

    package: str
    lock: str
    program: str
    transport: Transport
    blocks: bool
    backend: str
    set_up: Callable[[Transport, int, Path], AbstractContextManager[Setting]]
    every_s: float = 0.02  # between two quick calls

    @property
    def name(self) -> str:
        return f"{self.package} {self.lock.removeprefix('field-')} {self.transport}"


def _place(transport: Transport, port: int, *, http: str = "streamable-http") -> tuple[str, ...]:
    """``--transport … --port …``, as many servers take them."""
    if transport == "stdio":
        return ("--transport", "stdio")
    return ("--transport", "sse" if transport == "SSE" else http, "--port", str(port), "--host", "127.0.0.1")


@contextmanager
def clock(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    convert = {"source_timezone": "Europe/Warsaw", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    quick = Ask("get_current_time", {"timezone": "UTC"})
    yield Setting(Ask("convert_time", convert), quick, ("--local-timezone", "UTC"))


@contextmanager
def sqlite(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    backends.database(folder / "shop.db")
    slow = Ask("read_query", {"query": backends.SLOW_QUERY})
    yield Setting(slow, Ask("list_tables"), ("--db-path", str(folder / "shop.db")))


@contextmanager
def alchemy(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    backends.database(folder / "shop.db")
    slow = Ask("execute_query", {"query": backends.SLOW_QUERY})
    environment = {"DB_URL": f"sqlite:///{folder}/shop.db"}
    yield Setting(slow, Ask("all_table_names"), _place(transport, port), environment)


@contextmanager
def git(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    path = folder / "repository"
    make_repository(path, commits=900)
    log = Ask("git_log", {"repo_path": str(path), "max_count": 850})
    yield Setting(log, Ask("git_branch", {"repo_path": str(path), "branch_type": "local"}), ("--repository", str(path)))


def fetch(*options: str) -> Callable[[Transport, int, Path], AbstractContextManager[Setting]]:
    @contextmanager
    def set_up(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
        pages = {"/large.html": backends.large_page(), "/small.html": backends.SMALL_PAGE}
        found = {path: ("text/html", page) for path, page in pages.items()}
        with backends.slow_http(lambda path, body: found.get(path)) as address:
            # Where it finds node, a library below this server has npm download packages.
            environment = {"PATH": str(folder)}
            large = Ask("fetch", {"url": f"{address}/large.html", "max_length": 1000})
            small = Ask("fetch", {"url": f"{address}/small.html"})
            yield Setting(large, small, ("--ignore-robots-txt", *options), environment)

    return set_up


@contextmanager
def redis(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_redis() as redis_port:
        at = ("--url", f"redis://127.0.0.1:{redis_port}/0")
        yield Setting(Ask("scan_all_keys", {"pattern": "key:*"}), Ask("get", {"key": "greeting"}), at)


@contextmanager
def excel_of_2025(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    backends.workbook(folder / "large.xlsx", backends.WORKBOOK_BYTES)
    backends.workbook(folder / "small.xlsx", 20_000)
    name = str if transport == "stdio" else lambda path: path.name  # over HTTP it takes names below its folder
    read = {"filepath": name(folder / "large.xlsx"), "sheet_name": "Data", "start_cell": "B1", "end_cell": "B2"}
    quick = Ask("get_workbook_metadata", {"filepath": name(folder / "small.xlsx")})
    environment = {"EXCEL_FILES_PATH": str(folder), "FASTMCP_PORT": str(port), "FASTMCP_HOST": "127.0.0.1"}
    command = {"stdio": "stdio", "HTTP": "streamable-http", "SSE": "sse"}[transport]
    path = "/sse" if transport == "SSE" else "/mcp"
    yield Setting(Ask("read_data_from_excel", read), quick, (command,), environment, path)


@contextmanager
def excel(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    backends.workbook(folder / "large.xlsx", backends.WORKBOOK_BYTES)
    backends.workbook(folder / "small.xlsx", 20_000)
    read = Ask("read_range", {"path": "large.xlsx", "sheet": "Data", "range": "B1:B2"})
    place = ("streamable-http", "--port", str(port)) if transport == "HTTP" else ("stdio",)
    yield Setting(read, Ask("describe_workbook", {"path": "small.xlsx"}), (*place, "--allow-dir", str(folder)))


@contextmanager
def calculator(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    yield Setting(Ask("calculate", {"expression": "factorial(200000) % 7"}), Ask("calculate", {"expression": "2 + 2"}))


@contextmanager
def shell(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    environment = {"ALLOW_COMMANDS": "sleep,echo"}
    sleep = Ask("shell_execute", {"command": ["sleep", "0.5"], "directory": str(folder)})
    yield Setting(sleep, Ask("shell_execute", {"command": ["echo", "x"], "directory": str(folder)}), (), environment)


@contextmanager
def word(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    backends.document(folder / "large.docx", 10_000)
    name = {"stdio": "stdio", "HTTP": "streamable-http", "SSE": "sse"}[transport]
    environment = {"MCP_TRANSPORT": name, "MCP_HOST": "127.0.0.1", "MCP_PORT": str(port)}
    slow = Ask("get_document_text", {"filename": str(folder / "large.docx")})
    quick = Ask("list_available_documents", {"directory": str(folder)})
    yield Setting(slow, quick, (), environment, "/sse" if transport == "SSE" else "/mcp")


@contextmanager
def elasticsearch(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_http(backends.elasticsearch) as address:
        environment = {"ELASTICSEARCH_HOSTS": address, "ELASTICSEARCH_API_KEY": "field"}
        quick = Ask("get_index", {"index": "items"})
        yield Setting(Ask("list_indices"), quick, _place(transport, port), environment)


def atlassian(delay_s: float = backends.HTTP_S) -> Callable[[Transport, int, Path], AbstractContextManager[Setting]]:
    @contextmanager
    def set_up(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
        with backends.slow_http(backends.jira, delay_s) as address:
            environment = {"JIRA_URL": address, "JIRA_PERSONAL_TOKEN": "field", "JIRA_SSL_VERIFY": "false"}
            slow = Ask("jira_get_issue", {"issue_key": "FLD-1"})
            place, headers = _place(transport, port), {"authorization": "Token field"}
            yield Setting(slow, Ask("jira_get_link_types"), place, environment, headers=headers)

    return set_up


@contextmanager
def motherduck(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    place = _place(transport, port, http="http")
    slow = Ask(
        "execute_query", {"sql": "SELECT count(*) FROM range(4000) a, range(5000) b WHERE (a.range + b.range) % 7 = 1"}
    )
    options = ("--db-path", ":memory:", "--read-write")
    yield Setting(slow, Ask("list_tables"), (*place, *options), {"HOME": str(folder)})


@contextmanager
def motherduck_quick(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    query = Ask("execute_query", {"sql": "SELECT 1"})
    place = _place(transport, port, http="http")
    yield Setting(query, query, (*place, "--db-path", ":memory:", "--read-write"), {"HOME": str(folder)})


@contextmanager
def markitdown(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    (folder / "large.html").write_bytes(backends.large_page())
    (folder / "small.html").write_bytes(backends.SMALL_PAGE)
    slow, quick = ({"uri": (folder / name).as_uri()} for name in ("large.html", "small.html"))
    place = ("--http", "--host", "127.0.0.1", "--port", str(port)) if transport == "HTTP" else ()
    yield Setting(Ask("convert_to_markdown", slow), Ask("convert_to_markdown", quick), place)


@contextmanager
def commands(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    environment = {"ALLOWED_DIR": str(folder), "ALLOWED_COMMANDS": "sleep,echo", "ALLOWED_FLAGS": "all"}
    sleep, echo = (Ask("run_command", {"command": command}) for command in ("sleep 0.15", "echo x"))
    yield Setting(sleep, echo, (), environment)


@contextmanager
def prometheus(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_http(backends.prometheus) as address:
        environment = {"PROMETHEUS_URL": address, "PROMETHEUS_MCP_SERVER_TRANSPORT": "stdio"}
        yield Setting(Ask("execute_query", {"query": "up"}), Ask("health_check"), (), environment)


OPENSEARCH_S = 0.05
"""Making its client takes 7 to 30 ms of a processor, as fast as that is: a backend of 150 ms would hide it."""


@contextmanager
def opensearch(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_http(backends.opensearch, OPENSEARCH_S) as address:
        environment = {"OPENSEARCH_URL": address, "OPENSEARCH_NO_AUTH": "true", "AWS_EC2_METADATA_DISABLED": "true"}
        quick = Ask("IndexMappingTool", {"index": "items"})
        yield Setting(Ask("ListIndexTool"), quick, _place(transport, port, http="stream"), environment)


@contextmanager
def openapi(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_http(backends.item) as address:
        (folder / "shop.json").write_text(json.dumps(backends.shop(address)), "utf-8")
        what = ("--api-name", "shop", "--api-url", address, "--spec-path", str(folder / "shop.json"))
        allowed = ("--allow-insecure-http", "--allow-private-networks", "--allowed-spec-dirs", str(folder))
        yield Setting(Ask("find_items", {"name": "chair"}), Ask("health"), (*what, *allowed))


def graphql(parts: int = 0) -> Callable[[Transport, int, Path], AbstractContextManager[Setting]]:
    @contextmanager
    def set_up(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
        with backends.slow_http(backends.graphql(parts)) as address:
            yield Setting(Ask("item", {"name": "chair"}), Ask("health"), ("--api-url", f"{address}/graphql"))

    return set_up


@contextmanager
def clickhouse(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    with backends.slow_http(backends.clickhouse) as address:
        environment = {
            "CLICKHOUSE_HOST": "127.0.0.1",
            "CLICKHOUSE_PORT": address.rpartition(":")[2],
            "CLICKHOUSE_USER": "field",
            "CLICKHOUSE_PASSWORD": "field",
            "CLICKHOUSE_SECURE": "false",
            "CLICKHOUSE_MCP_SERVER_TRANSPORT": "http" if transport == "HTTP" else "stdio",
            "CLICKHOUSE_MCP_BIND_PORT": str(port),
            "CLICKHOUSE_MCP_AUTH_DISABLED": "true",
        }
        yield Setting(Ask("run_query", {"query": "SELECT 1"}), Ask("list_databases"), (), environment)


ROWS = [
    Row("mcp-server-sqlite", "field-sqlite", "mcp-server-sqlite", "stdio", True, "SQLite", sqlite),
    Row("mcp-server-git", "field-git-mcp1", "mcp-server-git", "stdio", True, "a repository of 900 commits", git),
    Row("mcp-server-fetch", "field-fetch-mcp1", "mcp-server-fetch", "stdio", True, "HTTP, 150 ms", fetch()),
    Row("mcp-server-time", "field-time-mcp1", "mcp-server-time", "stdio", False, "none", clock),
    Row("mcp-shell-server", "field-shell", "mcp-shell-server", "stdio", False, "processes", shell),
    Row("redis-mcp-server", "field-redis", "redis-mcp-server", "stdio", True, "Redis, 50 ms a command", redis, 0.06),
    Row("mcp-server-calculator", "field-calculator", "mcp-server-calculator", "stdio", True, "none", calculator),
    *(
        Row(
            "excel-mcp-server", "field-excel-fastmcp2", "excel-mcp-server", way, True, "a 20 MB workbook", excel_of_2025
        )
        for way in ("stdio", "HTTP", "SSE")
    ),
    *(
        Row("office-word-mcp-server", "field-word-fastmcp2", "word_mcp_server", way, True, "a large document", word)
        for way in ("stdio", "HTTP")
    ),
    *(
        Row(
            "elasticsearch-mcp-server",
            "field-elasticsearch",
            "elasticsearch-mcp-server",
            way,
            False,
            "HTTP, 150 ms",
            elasticsearch,
        )
        for way in ("stdio", "HTTP")
    ),
    *(
        Row("mcp-atlassian", "field-atlassian", "mcp-atlassian", way, True, "HTTP, 150 ms", atlassian(), 0.16)
        for way in ("stdio", "HTTP")
    ),
    Row("mcp-server-time", "field-time", "mcp-server-time", "stdio", False, "none", clock),
    Row("mcp-server-git", "field-git", "mcp-server-git", "stdio", False, "a repository of 900 commits", git),
    Row(
        "mcp-server-fetch",
        "field-fetch",
        "mcp-server-fetch",
        "stdio",
        True,
        "HTTP, 150 ms",
        fetch("--allow-private-ips"),
    ),
    Row("mcp-alchemy", "field-alchemy", "mcp-alchemy", "stdio", False, "SQLite", alchemy),
    *(
        Row("excel-mcp-server", "field-excel", "excel-mcp-server", way, False, "a 20 MB workbook", excel)
        for way in ("stdio", "HTTP")
    ),
    Row("markitdown-mcp", "field-markitdown", "markitdown-mcp", "HTTP", True, "files", markitdown),
    *(
        Row("office-word-mcp-server", "field-word", "word_mcp_server", way, True, "a large document", word)
        for way in ("stdio", "HTTP")
    ),
    Row("mcp-server-motherduck", "field-motherduck", "mcp-server-motherduck", "HTTP", False, "DuckDB", motherduck),
    Row("mcp-clickhouse", "field-clickhouse", "mcp-clickhouse", "HTTP", False, "HTTP, 150 ms", clickhouse),
    *(
        Row(
            "opensearch-mcp-server-py",
            "field-opensearch",
            "opensearch-mcp-server-py",
            way,
            False,
            "HTTP, 50 ms",
            opensearch,
        )
        for way in ("stdio", "HTTP")
    ),
    Row(
        "awslabs.openapi-mcp-server",
        "field-openapi",
        "awslabs.openapi-mcp-server",
        "stdio",
        False,
        "HTTP, 150 ms",
        openapi,
    ),
    Row("mcp-graphql", "field-graphql", "mcp-graphql", "stdio", False, "HTTP, 150 ms", graphql()),
]
