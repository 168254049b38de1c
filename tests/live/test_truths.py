"""What `top` says of servers that hang in known ways: real servers on each SDK, transport and loop."""

from __future__ import annotations

import json
import os
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.now import RequestNow, Snapshot, WaitNow
from mcp_probe.top.servers import Connection, Gone, find
from mcp_probe.top.why import circles
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.adapters.test_await_truths import Cell, line_of, python_of
from tests.live.test_attached import sockets_in
from tests.ports import free_port

SERVER = Path(__file__).parent / "live_server.py"
ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 60.0
CALLS, THREADS = 50, 40

QUICK = [
    Cell("own", "stdio"),
    Cell("own", "http", "uvloop", native=False),
    Cell("mcp1", "stdio", "trio"),
]
ALL = [
    Cell(environment, transport, loop, native)
    for environment in ("own", "mcp1")
    for transport, loops in (("stdio", ("asyncio", "uvloop", "trio")), ("http", ("asyncio", "uvloop")))
    for loop in loops
    for native in (True, False)
]


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This probe, and the loops, for environments that have none."""
    folder = tmp_path_factory.mktemp("lent") / "site-packages"
    folder.mkdir()
    for name in ("trio", "uvloop", "sortedcontainers", "outcome", "sniffio", "attr", "attrs"):
        (folder / name).symlink_to(Path(sysconfig.get_paths()["purelib"]) / name)
    return f"{ROOT}{os.pathsep}{folder}"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder for sockets that no other server uses; its name is short."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield folder


def client_of(cell: Cell, python: Path, folder: Path, lent: str) -> RawClient:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": lent if cell.environment != "own" else str(ROOT)}
    environment |= {} if cell.native else {"MCP_PROBE_NATIVE": "0"}
    port = free_port()
    command = [str(python), str(SERVER), cell.transport, str(port), cell.loop]
    if cell.transport == "stdio":
        return StdioClient(command, folder, environment, profiled=True)
    return HttpClient(command, folder, environment, port, "/mcp", profiled=True)


def until(connection: Connection, holds: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot of which ``holds`` is true."""
    deadline, last = time.monotonic() + LIMIT_S, None
    while time.monotonic() < deadline:
        said = connection.read(1.0)
        if said is not None and said[0] == "snapshot":
            last = said[1]
            assert isinstance(last, Snapshot)
            if holds(last):
                return last
            connection.say("watch")  # the next one soon
    raise AssertionError(f"it never came to that; last: {last}")


def of(snapshot: Snapshot, operation: str) -> RequestNow:
    [found] = [request for request in snapshot.requests if request.operation == operation]
    return found


def waits_of(snapshot: Snapshot, operation: str) -> list[WaitNow]:
    return [wait for request in snapshot.requests if request.operation == operation for wait in request.waits]


def check_circle_and_backend(client: RawClient, connection: Connection) -> None:
    for tool in ("first", "second", "asks", "port"):
        client.call(tool, tool)
    client.wait_for("port")
    port = client.answers["port"][1]["result"]["content"][0]["text"]
    names = ("first", "second", "asks")

    def hang(now: Snapshot) -> bool:
        asked = "http" in [wait.kind for wait in waits_of(now, "asks")]  # before that it connects
        return asked and all(waits_of(now, name) for name in names) and len(circles(now)) == 1

    seen = until(connection, hang)
    first, second = of(seen, "first"), of(seen, "second")
    for waiter, holder, line, taken in (
        (first, second, "# first waits for B", "# second takes B"),
        (second, first, "# second waits for A", "# first takes A"),
    ):
        assert waiter.state == "awaiting"
        [wait] = waiter.waits
        assert (wait.kind, wait.where) == ("lock", line_of(line, SERVER))
        [held] = wait.holders
        assert (held.request, held.operation, held.where) == (holder.id, holder.operation, line_of(taken, SERVER))
    [backend] = waits_of(seen, "asks")
    assert (backend.kind, backend.object) == ("http", f"http://127.0.0.1:{port}")
    assert backend.where == line_of("# asks", SERVER)
    assert "secret" not in json.dumps([str(request) for request in seen.requests])
    client.call("untie", "untie")
    client.wait_for(*names, "untie")


def check_blocked(client: RawClient, connection: Connection) -> None:
    client.call("blocks", "blocks")
    line = line_of("# blocks", SERVER)

    def is_there(loop: Any) -> bool:
        return loop.state == "blocked" and loop.step is not None and loop.step.where == line

    seen = until(connection, lambda now: any(map(is_there, now.loops)))
    [loop] = [loop for loop in seen.loops if loop.state == "blocked"]
    assert loop.step is not None
    blocks = of(seen, "blocks")
    assert (loop.step.request, loop.step.operation) == (blocks.id, "blocks")
    assert loop.step.for_ms >= seen.slow_step_ms
    assert blocks.state == "busy"
    later = until(connection, lambda now: now.at_unix > seen.at_unix)  # it is still blocked: nobody needs the loop
    assert [loop.state for loop in later.loops] == ["blocked"]
    Path(f"{client.waits}.block").touch()
    client.wait_for("blocks")


def check_threads(client: RawClient, connection: Connection, transport: str) -> None:
    for number in range(CALLS):
        client.call(f"threads {number}", "threads")
    # The stdio transport needs a thread to read the others. On trio, which takes tasks in any order, it gets one more
    # now and then before the last tool does.
    all_in = CALLS if transport == "http" else THREADS + 1

    def has_come(now: Snapshot) -> bool:
        rows = [request for request in now.requests if request.operation == "threads"]
        running = [request for request in rows if request.state == "executor_run"]
        at = {request.where or (request.waits[0].where if request.waits else None) for request in running}
        is_settled = {request.state for request in rows} <= {"executor_run", "executor_wait"}
        is_settled &= at == {line_of("# in a thread", SERVER)}  # a thread has begun before it is at that line
        return is_settled and len(running) == THREADS and len(rows) >= all_in

    come = until(connection, has_come)
    # A snapshot reads the pools before the requests: in a later one nothing has moved between these.
    seen = until(connection, lambda now: now.at_unix > come.at_unix and has_come(now))
    waiting = [request for request in seen.requests if request.state == "executor_wait"]
    assert len(waiting) == CALLS - THREADS if transport == "http" else waiting
    for request in waiting:
        [wait] = request.waits
        [holder] = wait.holders
        assert (wait.kind, wait.object) == ("threads", "anyio default limiter")
        assert (holder.operation, holder.count) == ("threads", THREADS)
    [pool] = [pool for pool in seen.pools if pool.name == "anyio default limiter"]
    assert (pool.max, pool.active, pool.pending) == (THREADS, THREADS, len(waiting))
    running = [request for request in seen.requests if request.state == "executor_run"]
    assert {request.where or request.waits[0].where for request in running} == {line_of("# in a thread", SERVER)}
    if transport == "stdio":
        seen = until(connection, lambda now: bool(now.unread))
        assert any("the stdio transport reads on a thread" in note for note in seen.notes)
    Path(f"{client.waits}.threads").touch()
    client.wait_for(*(f"threads {number}" for number in range(CALLS)))


def check(cell: Cell, python: Path, folder: Path, lent: str) -> None:
    with ExitStack() as opened:
        with client_of(cell, python, folder, lent) as client:
            [path] = sockets_in(Path(os.environ["XDG_RUNTIME_DIR"]) / "mcp-probe")
            connection = opened.enter_context(closing(Connection(path)))
            assert (connection.name, connection.pid) == ("hanging", client.process.pid)
            connection.say("watch")
            check_circle_and_backend(client, connection)
            check_blocked(client, connection)
            check_threads(client, connection, cell.transport)
            server = until(connection, lambda now: now.in_flight == 0).server
            assert (server.loop, server.transport) == (cell.loop, "http" if cell.transport == "http" else "stdio")
        with pytest.raises(Gone, match=r"its process ends|a signal ends its process"):
            while True:
                connection.read(LIMIT_S)
    assert path not in find().paths and not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_who_hangs_where_and_who_holds_him_is_told_while_he_hangs(
    cell: Cell, env_python: Callable[[str], Path], lent: str, runtime: str, tmp_path: Path
) -> None:
    check(cell, python_of(cell, env_python), tmp_path, lent)


@pytest.mark.endurance
@pytest.mark.parametrize("cell", [cell for cell in ALL if cell not in QUICK], ids=str)
def test_so_it_is_on_each_sdk_transport_and_loop(
    cell: Cell, env_python: Callable[[str], Path], lent: str, runtime: str, tmp_path: Path
) -> None:
    check(cell, python_of(cell, env_python), tmp_path, lent)
