"""Real MCP servers that nobody here wrote: how each is started, and what it is asked.

Each stands in an environment of its own, made by ``make envs``, that does not hold mcp_probe. What it is asked has
the same answer every time, so a run with the probe can be held against one without.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import anyio

from mcp_probe.workloads.client import Call, LoadSession
from tests.adapters.waits.backends import redis_server

IN_FLIGHT = 6


@dataclass(frozen=True)
class Setting:
    """A server ready to be started, and one round of what it is asked."""

    arguments: list[str]
    ask: Callable[[LoadSession], Awaitable[object]]
    counts: Mapping[str, int]  # tool -> calls of it in one round
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RealServer:
    """``environment`` as in ``requirements/``; ``set_up`` gives what must live as long as the server is asked."""

    program: str
    environment: str
    set_up: Callable[[Path], AbstractContextManager[Setting]]

    def command(self, root: Path, setting: Setting) -> list[str]:
        return [str(root / ".envs" / self.environment / "bin" / self.program), *setting.arguments]


# --- mcp-server-time: nothing is wrong with it ----------------------------------------------------


@contextmanager
def zones(folder: Path) -> Iterator[Setting]:
    pairs = [("Europe/Warsaw", "Asia/Tokyo"), ("UTC", "America/Lima"), ("Asia/Kolkata", "Pacific/Chatham")]
    calls = [
        Call("convert_time", {"source_timezone": source, "time": f"{hour:02}:30", "target_timezone": target})
        for hour in range(12)
        for source, target in pairs
    ]
    calls += [Call("get_current_time", {"timezone": zone}) for pair in pairs for zone in pair]
    calls += [Call("get_current_time", {"timezone": "Middle-earth/Hobbiton"})]
    yield Setting(["--local-timezone", "UTC"], pipelining(calls), counts_of(calls))


# --- mcp-server-git: works in threads, one call at a time -----------------------------------------

_COMMITS = 40


@contextmanager
def repository(folder: Path) -> Iterator[Setting]:
    path = folder / "repository"
    make_repository(path, commits=_COMMITS)
    calls = [
        *(Call("git_log", {"repo_path": str(path), "max_count": 10}) for _ in range(6)),
        *(Call("git_status", {"repo_path": str(path)}) for _ in range(10)),
        *(Call("git_show", {"repo_path": str(path), "revision": f"HEAD~{back}"}) for back in range(10)),
        *(Call("git_diff_unstaged", {"repo_path": str(path)}) for _ in range(10)),
        Call("git_show", {"repo_path": str(path), "revision": "no-such-revision"}),
    ]
    yield Setting(["--repository", str(path)], pipelining(calls), counts_of(calls))


def make_repository(path: Path, *, commits: int) -> None:
    """The same commits, hashes included, wherever and whenever it is made."""
    path.mkdir()
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        nobody |= {
            f"GIT_{role}_NAME": "A",
            f"GIT_{role}_EMAIL": "a@example.org",
            f"GIT_{role}_DATE": "@1700000000 +0000",
        }

    def git(*arguments: str, stdin: str = "") -> None:
        environment = {**os.environ, **nobody}
        subprocess.run(
            ["git", *arguments], input=stdin, cwd=path, env=environment, text=True, capture_output=True, check=True
        )

    git("init", "--initial-branch=main")
    stream = "".join(
        f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + number} +0000\n"
        f"data 10\ncommit {number:03}\nM 100644 inline notes.txt\n"
        f"data {len(_text(number))}\n{_text(number)}\n"
        for number in range(commits)
    )
    git("fast-import", "--quiet", stdin=stream)
    git("reset", "--hard")
    (path / "notes.txt").write_text(_text(commits).upper())


def _text(number: int) -> str:
    return "".join(f"line {line} of version {number}\n" for line in range(200))


# --- mcp-server-fetch: turns HTML into Markdown on the event loop ---------------------------------

_SECTIONS = 600
_SMALL = "<html><head><title>small</title></head><body><p>A page of one paragraph.</p></body></html>"


@contextmanager
def pages(folder: Path) -> Iterator[Setting]:
    with _file_server() as address:
        large = Call("fetch", {"url": f"{address}/large.html", "max_length": 1000})
        small = [Call("fetch", {"url": f"{address}/small.html"})] * 5

        async def ask(session: LoadSession) -> None:
            """Small pages while nothing else happens, and while a large one is being converted."""
            await session.pipelined(small, in_flight=IN_FLIGHT)
            async with anyio.create_task_group() as group:
                group.start_soon(session.pipelined, [large])
                await anyio.sleep(0.2)
                group.start_soon(session.pipelined, small)

        yield Setting(
            ["--ignore-robots-txt", "--allow-private-ips"],
            ask,
            {"fetch": 2 * len(small) + 1},
            # Where it finds node, a library below this server has npm download packages; no proxy for loopback.
            {"PATH": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
        )


@contextmanager
def _file_server() -> Iterator[str]:
    section = (
        "<h2>Part {0}</h2><p>Some <b>text</b> with <a href='/{0}'>a link</a>.</p><ul><li>one</li><li>two</li></ul>"
    )
    body = "".join(f"<div>{section.format(number)}</div>" for number in range(_SECTIONS))
    files = {"/small.html": _SMALL, "/large.html": f"<html><head><title>large</title></head><body>{body}</body></html>"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files[self.path].encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- mcp-server-sqlite: mcp 1.x, queries run on the event loop ------------------------------------

# It takes queries only if they begin with SELECT.
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)"
_COUNT = f"SELECT ({_NUMBERS} SELECT sum(i) FROM n) AS total"


def _items(folder: Path) -> Path:
    """A database of a thousand items and their prices."""
    path = folder / "shop.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price INTEGER)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((number, 7 * number) for number in range(1000)))
    connection.close()
    return path


@contextmanager
def tables(folder: Path) -> Iterator[Setting]:
    path = _items(folder)
    calls = [
        *(Call("read_query", {"query": f"SELECT price FROM item WHERE id = {number}"}) for number in range(12)),
        Call("read_query", {"query": _COUNT}),
        *(Call("list_tables", {}) for _ in range(6)),
        *(Call("describe_table", {"table_name": "item"}) for _ in range(6)),
        Call("read_query", {"query": _COUNT}),
        *(Call("read_query", {"query": "SELECT * FROM no_such_table"}) for _ in range(2)),
        *(Call("list_tables", {}) for _ in range(6)),
    ]
    yield Setting(["--db-path", str(path)], pipelining(calls), counts_of(calls))


# --- mcp-server-motherduck: fastmcp 4, queries run in threads -------------------------------------


@contextmanager
def analytics(folder: Path) -> Iterator[Setting]:
    queries = [f"SELECT sum(range * {factor}) AS total FROM range(1000000)" for factor in range(1, 21)]
    calls = [
        *(Call("execute_query", {"sql": query}) for query in queries),
        *(Call("list_tables", {}) for _ in range(10)),
        Call("execute_query", {"sql": "SELECT nothing FROM nowhere"}),
    ]
    # One at a time: its threads share a connection, and answers get mixed up (with and without the probe).
    ask = pipelining(calls, in_flight=1)
    yield Setting(["--db-path", ":memory:", "--read-write"], ask, counts_of(calls), {"HOME": str(folder)})


# --- mcp-shell-server: starts programs --------------------------------------------------------------


@contextmanager
def programs(folder: Path) -> Iterator[Setting]:
    def run(*command: str) -> Call:
        return Call("shell_execute", {"command": [*command], "directory": str(folder)})

    calls = [*(run("sleep", "0.2") for _ in range(6)), *(run("echo", str(number)) for number in range(12))]
    calls += [run("seq", "100000"), run("rm", "-r", "nothing")]  # the last is not allowed
    yield Setting([], pipelining(calls), counts_of(calls), {"ALLOW_COMMANDS": "sleep,echo,seq"})


# --- redis-mcp-server: asks Redis on the event loop -------------------------------------------------


@contextmanager
def cache(folder: Path) -> Iterator[Setting]:
    user, password = "field", "password"
    with redis_server(user, password) as port:
        calls = [Call("set", {"key": f"key:{number}", "value": "x" * 100}) for number in range(20)]
        calls += [Call("get", {"key": f"key:{number}"}) for number in range(20)]
        calls += [Call("scan_all_keys", {"pattern": "key:*"}), Call("hgetall", {"name": "nothing"})]
        url = f"redis://{user}:{quote(password)}@127.0.0.1:{port}/0"
        yield Setting(["--url", url], pipelining(calls), counts_of(calls))


# --- mcp-alchemy: SQLAlchemy in threads, a pool of one connection -----------------------------------

_WORK = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT sum(i) AS total FROM n"


@contextmanager
def shop(folder: Path) -> Iterator[Setting]:
    path = _items(folder)
    calls = [
        *(Call("execute_query", {"query": f"SELECT price FROM item WHERE id = {number}"}) for number in range(12)),
        *(Call("all_table_names", {}) for _ in range(6)),
        *(Call("execute_query", {"query": _WORK}) for _ in range(4)),
        *(Call("schema_definitions", {"table_names": ["item"]}) for _ in range(6)),
        *(Call("execute_query", {"query": "SELECT * FROM no_such_table"}) for _ in range(2)),
    ]
    yield Setting([], pipelining(calls), counts_of(calls), {"DB_URL": f"sqlite:///{path}"})


def pipelining(calls: list[Call], *, in_flight: int = IN_FLIGHT) -> Callable[[LoadSession], Awaitable[object]]:
    async def ask(session: LoadSession) -> None:
        await session.pipelined(calls, in_flight=in_flight)

    return ask


def counts_of(calls: list[Call]) -> dict[str, int]:
    tools = [call.tool for call in calls]
    return {tool: tools.count(tool) for tool in tools}


SERVERS = {
    server.program: server
    for server in (
        RealServer("mcp-server-time", "field-time", zones),
        RealServer("mcp-server-git", "field-git", repository),
        RealServer("mcp-server-fetch", "field-fetch", pages),
        RealServer("mcp-server-sqlite", "field-sqlite", tables),
        RealServer("mcp-server-motherduck", "field-motherduck", analytics),
    )
}

WITH_BACKENDS = {
    server.program: server
    for server in (
        RealServer("mcp-shell-server", "field-shell", programs),
        RealServer("redis-mcp-server", "field-redis", cache),
        RealServer("mcp-alchemy", "field-alchemy", shop),
    )
}
"""Their reports are in docs/field-reports.md; `make field` compares what their clients wait with what we say."""
