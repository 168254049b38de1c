"""Servers with something to mend, each beside its mended twin, for ``python -m benchmarks.predictions``.

Bundled ones differ by one argument. Real ones are packages that nobody here wrote; their twins run a copy that is
mended by hand: a few lines of its source, replaced as they stand in ``Real.mends``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_probe.predict.change import Change
from tests.adapters.waits.backend import serving
from tools.field.backends import prometheus, slow_http, slow_redis
from tools.interpreters import ROOT

FAULTS = ROOT / "tools" / "findings" / "server.py"
OWN = Path(__file__).with_name("prediction_server.py")
ENVIRONMENTS = ROOT / ".envs"
TOOL = "tool"

Form = Literal["fault", "mended"]
Transport = str
Ask = tuple[str, Mapping[str, Any], int]
"""A tool, its arguments, and how many of it are asked at once."""
Work = tuple[Sequence[str], tuple[Ask, ...], Mapping[str, str]]
"""A real server's arguments, what it is asked, and its environment."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A server ready to be started, and what it is asked. ``mean_gap_s``: instead of bursts, one call at a time of the
    client's own, so far apart on average."""

    command: Sequence[str]
    asks: tuple[Ask, ...]
    mean_gap_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Twins:
    """A server and its mended twin. ``set_up``: of a form, a transport, a port and a folder that is its own."""

    name: str
    changes: tuple[Change, ...]
    set_up: Callable[[Form, Transport, int, Path], AbstractContextManager[Setting]]
    transports: tuple[Transport, ...] = ("stdio", "http")
    about: str = ""


# --- bundled ------------------------------------------------------------------------------------------


def _bundled(
    name: str,
    server: Path,
    *changes: Change,
    calls: tuple[tuple[str, int], ...] = (("", 6),),
    mended_calls: tuple[tuple[str, int], ...] = (),
    gaps_s: tuple[float | None, float | None] = (None, None),
    transports: tuple[Transport, ...] = ("stdio", "http"),
) -> Twins:
    """``calls``: suffix of a tool -> how many at once. ``gaps_s``: of the two forms, instead of calls at once."""

    @contextmanager
    def set_up(form: Form, transport: Transport, port: int, _: Path) -> Iterator[Setting]:
        with serving(first_byte=0.02) as quick, serving(first_byte=0.4) as slow:
            asked = mended_calls if form == "mended" and mended_calls else calls
            yield Setting(
                [sys.executable, str(server), name, form, TOOL, transport, str(port), quick.address, slow.address],
                tuple((TOOL + suffix, {}, count) for suffix, count in asked),
                gaps_s[form == "mended"],
                {"PYTHONPATH": str(ROOT)},
            )

    return Twins(name, changes, set_up, transports)


BUNDLED = (
    _bundled("blocking_call", FAULTS, Change("offload", TOOL), calls=(("", 3),)),
    _bundled("head_of_line", FAULTS, Change("offload", f"{TOOL}_holder"), calls=(("_holder", 1), ("", 4))),
    _bundled("serial_handler", FAULTS, Change("narrow", "Lock")),
    _bundled("pool_exhausted", FAULTS, Change("pool", "httpx", 8)),
    _bundled("client_per_request", FAULTS, Change("share-client", TOOL), calls=(("", 2),)),
    _bundled("serial_awaits", FAULTS, Change("gather", TOOL), calls=(("", 4),)),
    _bundled("executor_saturated", FAULTS, Change("pool", "CapacityLimiter", 16), calls=(("", 8),)),
    _bundled(
        "transport_starvation", FAULTS, Change("private-pool", TOOL, 40), calls=(("", 60),), transports=("stdio",)
    ),
    _bundled("serial_client", FAULTS, Change("rate", "", 8), calls=(("", 1),), mended_calls=(("", 8),)),
    _bundled("semaphore", OWN, Change("pool", "Semaphore", 8)),
    _bundled("executor", OWN, Change("pool", "ThreadPoolExecutor", 8)),
    _bundled("default_limiter", OWN, Change("pool", "anyio default", 80), calls=(("", 60),), transports=("stdio",)),
    _bundled("row_of_sleeps", OWN, Change("gather", TOOL), calls=(("", 4),)),
    _bundled("computing", OWN, Change("offload", f"{TOOL}_heavy"), calls=(("_heavy", 1), ("", 4))),
    _bundled("half", OWN, Change("speed-up", TOOL, 0.5), calls=(("", 4),)),
    _bundled("more_load", OWN, Change("rate", "", 2), calls=(("", 1),), gaps_s=(0.05, 0.025)),
    _bundled("long_lock", OWN, Change("narrow", "Lock"), calls=(("_update", 2), ("", 4))),
    _bundled("blocked_threads_too", OWN, Change("offload", TOOL), Change("private-pool", TOOL, 4), calls=(("", 8),)),
)


# --- real ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mend:
    """One place in one file of a package, before and after."""

    file: str
    before: str
    after: str


def _real(
    program: str,
    sdk: str,
    environment: str,
    change: Change,
    mends: Sequence[Mend],
    work: Callable[[Path], AbstractContextManager[Work]],
    package: str = "",
) -> Twins:
    """``work`` makes in a folder what the server works on. ``package`` has the code, if it is not called as the
    program is."""
    package = package or program.replace("-", "_")

    @contextmanager
    def set_up(form: Form, transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
        path = [str(ROOT)]
        if form == "mended":
            path.insert(0, str(mended_copy(ENVIRONMENTS / environment, package, mends, folder / "mended")))
        with work(folder) as (arguments, asks, more):
            command = [str(ENVIRONMENTS / environment / "bin" / program), *arguments]
            yield Setting(command, asks, None, {"PYTHONPATH": os.pathsep.join(path), "NO_COLOR": "1", **more})

    return Twins(f"{program}, {sdk}", (change,), set_up, ("stdio",))


def mended_copy(environment: Path, package: str, mends: Sequence[Mend], into: Path) -> Path:
    """A folder with a copy of ``package`` in which each of ``mends`` is made.

    Raises:
        ValueError: the package is not the one that the mends were written for.
    """
    [source] = environment.glob(f"lib/python*/site-packages/{package}")
    shutil.copytree(source, into / package)
    for mend in mends:
        file = into / package / mend.file
        text = file.read_text("utf-8")
        if text.count(mend.before) != 1:
            raise ValueError(f"{package}/{mend.file} does not have the lines to mend just once:\n{mend.before}")
        file.write_text(text.replace(mend.before, mend.after), "utf-8")
    return into


@contextmanager
def _database(folder: Path) -> Iterator[Work]:
    """1,500 tables, the schema of which each connection reads, and a query that sorts 180,000 rows."""
    connection = sqlite3.connect(folder / "shop.db")
    with connection:
        connection.execute("BEGIN")  # else each table is a transaction of its own
        for number in range(1500):
            connection.execute(f"CREATE TABLE region_{number} (id INTEGER PRIMARY KEY, name TEXT, total INTEGER)")
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price INTEGER, name TEXT)")
        rows = ((number, number * 7919 % 100_003, f"item {number * 31 % 997}") for number in range(180_000))
        connection.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
    connection.close()
    query = "SELECT name, count(*) AS many, sum(price) AS total FROM item GROUP BY name ORDER BY total DESC LIMIT 20"
    asks: tuple[Ask, ...] = (("read_query", {"query": query}, 1), ("describe_table", {"table_name": "item"}, 3))
    yield ("--db-path", str(folder / "shop.db")), asks, {}


@contextmanager
def _repository(folder: Path) -> Iterator[Work]:
    """600 commits of 400 files."""
    path = folder / "repository"
    options = ("-c", "safe.directory=*", "-c", "user.name=A", "-c", "user.email=a@example.org")

    def git(*arguments: str, stdin: str = "") -> None:
        subprocess.run(["git", *options, *arguments], input=stdin.encode(), check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main", str(path))
    files = "".join(f"M 100644 inline {n % 20}/{n}.txt\ndata 8\nfile {n:03}\n" for n in range(400))
    commits = "".join(
        f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + n} +0000\n"
        f"data 11\ncommit {n:03}\n\n{files if not n else ''}M 100644 inline notes.txt\ndata 8\nnote {n:03}\n"
        for n in range(600)
    )
    git("-C", str(path), "fast-import", "--quiet", stdin=commits)
    git("-C", str(path), "reset", "--quiet", "--hard")
    log = {"repo_path": str(path), "max_count": 500}
    asks: tuple[Ask, ...] = (("git_log", log, 1), ("git_status", {"repo_path": str(path)}, 3))
    yield ("--repository", str(path)), asks, {}


@contextmanager
def _pages(folder: Path) -> Iterator[Work]:
    """Pages of 10 paragraphs, from a site that takes 50 ms."""
    parts = "".join(f"<p>Part {n} of the text, with <a href='/{n}'>a link</a>.</p>" for n in range(10))
    page = f"<html><head><title>page</title></head><body>{parts}</body></html>".encode()
    with slow_http(lambda path, body: ("text/html", page), 0.05) as address:
        asks: tuple[Ask, ...] = (("fetch", {"url": f"{address}/page.html"}, 3),)
        # Where it finds node, a library below this server has npm download packages.
        environment = {"PATH": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        yield ("--ignore-robots-txt", "--allow-private-ips"), asks, environment


@contextmanager
def _commands(folder: Path) -> Iterator[Work]:
    """One command of 60 ms beside three that end at once."""
    environment = {"ALLOWED_DIR": str(folder), "ALLOWED_COMMANDS": "sleep,echo", "ALLOWED_FLAGS": "all"}
    asks: tuple[Ask, ...] = (("run_command", {"command": "sleep 0.06"}, 1), ("run_command", {"command": "echo x"}, 3))
    yield (), asks, environment


@contextmanager
def _metrics(folder: Path) -> Iterator[Work]:
    """Three queries at once of a Prometheus that takes 150 ms."""
    with slow_http(prometheus) as address:
        environment = {"PROMETHEUS_URL": address, "PROMETHEUS_MCP_SERVER_TRANSPORT": "stdio"}
        yield (), (("execute_query", {"query": "up"}, 3),), environment


@contextmanager
def _keys(folder: Path) -> Iterator[Work]:
    """Four reads at once from a Redis that takes 50 ms a command."""
    with slow_redis() as port:
        yield ("--url", f"redis://127.0.0.1:{port}/0"), (("get", {"key": "greeting"}, 4),), {}


REAL = (
    _real(
        "mcp-server-sqlite",
        "mcp 1.30",
        "field-sqlite",
        Change("offload", "read_query"),
        (
            Mend("server.py", "import sqlite3\n", "import asyncio\nimport sqlite3\n"),
            Mend(
                "server.py",
                'for read_query")\n                results = db._execute_query(',
                'for read_query")\n                results = await asyncio.to_thread(db._execute_query, ',
            ),
        ),
        _database,
    ),
    _real(
        "mcp-server-git",
        "mcp 1.30",
        "field-git-mcp1",
        Change("offload", "git_log"),
        (
            Mend("server.py", "import logging\n", "import asyncio\nimport logging\n"),
            Mend("server.py", "log = git_log(\n", "log = await asyncio.to_thread(\n                    git_log,\n"),
        ),
        _repository,
    ),
    _real(
        "mcp-server-fetch",
        "mcp 2.3",
        "field-fetch",
        Change("share-client", "fetch"),
        (
            Mend(
                "server.py",
                "\nasync def fetch_url(\n",
                "\nfrom contextlib import asynccontextmanager\n\n_CLIENTS = {}\n\n\n@asynccontextmanager\n"
                "async def shared_client(proxy_url):\n"
                "    if proxy_url not in _CLIENTS:\n        _CLIENTS[proxy_url] = make_client(proxy_url)\n"
                "    yield _CLIENTS[proxy_url]\n\n\nasync def fetch_url(\n",
            ),
            Mend(
                "server.py",
                "    async with make_client(proxy_url) as client:\n"
                "        hooks: list[Callable[[httpx.Request], Awaitable[None]]] = []\n",
                "    async with shared_client(proxy_url) as client:\n"
                "        hooks: list[Callable[[httpx.Request], Awaitable[None]]] = []\n",
            ),
        ),
        _pages,
    ),
    _real(
        "cli-mcp-server",
        "mcp 1.30",
        "field-cli",
        Change("offload", "run_command"),
        (
            Mend("server.py", "import os\nimport re\n", "import asyncio\nimport os\nimport re\n"),
            Mend("server.py", "result = executor.execute(", "result = await asyncio.to_thread(executor.execute, "),
        ),
        _commands,
    ),
    _real(
        "prometheus-mcp-server",
        "mcp 2.3",
        "field-prometheus",
        Change("offload", "execute_query"),
        (
            Mend("server.py", "import os\nimport json\n", "import asyncio\nimport os\nimport json\n"),
            Mend(
                "server.py",
                'data = make_prometheus_request("query", params=params)',
                'data = await asyncio.to_thread(make_prometheus_request, "query", params=params)',
            ),
        ),
        _metrics,
    ),
    _real(
        "redis-mcp-server",
        "mcp 1.30",
        "field-redis",
        Change("offload", "get"),
        (
            Mend("tools/string.py", "import json\nfrom typing", "import asyncio\nimport json\nfrom typing"),
            Mend("tools/string.py", "value = r.get(key)", "value = await asyncio.to_thread(r.get, key)"),
        ),
        _keys,
        package="src",
    ),
)
