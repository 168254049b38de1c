"""What calls wait for outside the server, from a client's side: real servers on each SDK, over stdio and HTTP.

Backends in this process note themselves when which request came, on which connection; the tools of
``await_backends_server.py`` note when they asked, got and gave back. What was recorded of the calls must say the same.
Locks, queues and futures have servers of their own, in test_await_truths.py.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.model import Await, RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.adapters.test_await_truths import CLOSE_MS, Cell, line_of, no_wait_ms, python_of, said_in, together
from tests.adapters.test_http_arrival import tls_contexts
from tests.adapters.waits.backend import Backend, serving
from tests.adapters.waits.backend import Seen as Served
from tests.ports import free_port
from tests.turns import MS, Turn, held_for, held_in

SERVER = Path(__file__).with_name("await_backends_server.py")
ROOT = Path(__file__).resolve().parents[2]
CALLS = {"httpx": 20, "tls": 4, "sqlalchemy": 6, "started": 2, "ran": 1}
PLACES = {"httpx": 5, "sqlalchemy": 2}
ANSWER_S, HANDSHAKE_S, SLEEP_MS = 0.1, 0.03, 200.0
RUNS = 3

QUICK = [Cell("own", "stdio"), Cell("mcp1", "http", native=False)]
ALL = [
    Cell(environment, transport, native=native)
    for environment, transport, native in product(("own", "mcp1"), ("stdio", "http"), (True, False))
]


class Seen:
    """What tools and backends said, and what was recorded, of one cell."""

    def __init__(self, cell: Cell, client: RawClient, plain: Backend, tls: Backend) -> None:
        self.cell, self.plain, self.tls = cell, plain, tls
        self.summary: dict[str, Any] = client.summary
        self.said = {id: said_in(answer) for id, (_, answer) in client.answers.items() if "_" in id}
        frames = read_recording(client.recording)
        self.records = {frame.name: frame for frame in frames if isinstance(frame, RequestRecord) and frame.name}

    def turns(self, row: str) -> list[Turn]:
        names = [f"{row}_{number}" for number in range(CALLS[row])]
        return [Turn(name, *(self.said[name][what][0] for what in ("asked", "got", "gave_back"))) for name in names]

    def awaits(self, name: str, *kinds: str) -> list[Await]:
        """What hooks saw, not looks."""
        return [one for one in self.records[name].awaits or () if one.kind in kinds and not one.looks]

    def waited_ms(self, name: str, *kinds: str) -> float:
        return sum(one.ns for one in self.awaits(name, *kinds)) / MS

    def less_ms(self, name: str) -> float:
        """Of a call: what was no wait, for it ran or the loop had no turn for it."""
        return no_wait_ms(self.records[name]) + CLOSE_MS


def see(cell: Cell, python: Path, folder: Path) -> Seen:
    context, _ = tls_contexts(folder)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if cell.native else {"MCP_PROBE_NATIVE": "0"})
    with serving(first_byte=ANSWER_S) as plain, serving(context, first_byte=0.05, handshake=HANDSHAKE_S) as tls:
        port = free_port()
        where = [plain.address, tls.address, str(folder)]
        command = [str(python), str(SERVER), cell.transport, str(port), cell.loop, *where]
        make: Callable[[], RawClient] = (
            (lambda: StdioClient(command, folder, environment, profiled=True))
            if cell.transport == "stdio"
            else lambda: HttpClient(command, folder, environment, port, "/mcp", profiled=True)
        )
        with make() as client:
            for row, calls in CALLS.items():
                together(client, row, calls)
    seen = Seen(cell, client, plain, tls)
    assert seen.summary["probe"]["disabled_hooks"] == []
    assert (seen.summary["probe"]["accelerator"] == "active") == cell.native
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_what_calls_waited_for_outside_is_what_tools_and_backends_say(
    cell: Cell, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    check_cell(cell, python_of(cell, env_python), tmp_path)


@pytest.mark.endurance
@pytest.mark.parametrize("cell", [cell for cell in ALL if cell not in QUICK], ids=str)
def test_so_it_is_on_each_sdk_and_transport(cell: Cell, env_python: Callable[[str], Path], tmp_path: Path) -> None:
    check_cell(cell, python_of(cell, env_python), tmp_path)


def check_cell(cell: Cell, python: Path, folder: Path) -> None:
    """A machine that stops the server for a while makes other waits than the tools meant: such a run is made again."""
    for again in range(RUNS):
        place = folder / str(again)
        place.mkdir()
        try:
            return check(see(cell, python, place))
        except AssertionError:
            if again == RUNS - 1:
                raise


def check(seen: Seen) -> None:
    check_httpx(seen)
    check_tls(seen)
    check_sqlalchemy(seen)
    check_subprocesses(seen)


def check_httpx(seen: Seen) -> None:
    """Waits for the pool of five are as the backend's log says, and those who held it are those it served meanwhile."""
    served = sorted(seen.plain.seen, key=lambda one: one.came_ns)
    assert len(served) == CALLS["httpx"]
    assert len({one.connection for one in served}) == PLACES["httpx"]
    opened = sum(one.opened for one_of in served for one in seen.awaits(one_of.target[1:], "connect"))
    assert opened == PLACES["httpx"]
    before: dict[int, Served] = {}  # connection: the request that it served last
    for one in served:
        name = one.target[1:]
        check_first_byte(seen, name, seen.plain, line_of("# asks: httpx", SERVER), ANSWER_S)
        last, before[one.connection] = before.get(one.connection), one
        waits, asked = seen.awaits(name, "connection-pool"), seen.said[name]["asked"][0]
        waited_ms, less_ms = sum(wait.ns for wait in waits) / MS, seen.less_ms(name)
        if last is None:
            assert waited_ms < less_ms
            continue
        assert (last.last_ns - asked) / MS - less_ms < waited_ms <= (one.came_ns - asked) / MS
        for wait in waits:
            assert (wait.limit, wait.where) == (PLACES["httpx"], line_of("# asks: httpx", SERVER))
            assert wait.object == f"httpx pool made at {line_of('# made: httpx', SERVER).rpartition('/')[2]}"
        found = held_in(waits)
        assert sum(found.values()) == pytest.approx(waited_ms, abs=CLOSE_MS)
        for other in served:  # while the backend had their requests, they held one connection each
            shared_ms = (min(other.last_ns, last.last_ns) - max(other.came_ns, asked)) / PLACES["httpx"] / MS
            if other is not one and shared_ms > 0:
                assert found[other.target[1:]] > shared_ms - less_ms


def check_first_byte(seen: Seen, name: str, backend: Backend, where: str, delay_s: float) -> None:
    [first] = [one for one in seen.awaits(name, "http") if one.phase == "first-byte"]
    assert (first.object, first.where, first.calls) == (backend.address, where, 1)
    assert first.ns / MS > delay_s * 1000 - seen.less_ms(name)
    assert backend.of(f"/{name}").first_ns <= first.to_ns


def check_tls(seen: Seen) -> None:
    """A client a call: a connection each; no phase has what was another's."""
    assert seen.tls.connections == CALLS["tls"]
    for number in range(CALLS["tls"]):
        name = f"tls_{number}"
        check_first_byte(seen, name, seen.tls, line_of("# asks: tls", SERVER), 0.05)
        connects = seen.awaits(name, "connect")
        phases = Counter({one.phase: one.ns / MS for one in connects})
        assert set(phases) == {"tcp", "tls"}
        assert {one.object for one in connects} == {seen.tls.address}
        assert phases["tls"] > HANDSHAKE_S * 1000 - seen.less_ms(name)
        assert sum(one.opened for one in connects) == 1
        served = seen.tls.of(f"/{name}")
        [first] = [one for one in seen.awaits(name, "http") if one.phase == "first-byte"]
        assert max(one.to_ns for one in connects) <= first.from_ns
        assert first.from_ns >= seen.tls.secured_ns[served.connection]


def check_sqlalchemy(seen: Seen) -> None:
    """0 0 100 100 200 200, and held half and half by the two that were in."""
    turns = seen.turns("sqlalchemy")
    truth = held_for(turns, PLACES["sqlalchemy"])
    assert len(truth) == len(turns) - PLACES["sqlalchemy"]
    for turn in turns:
        waits, expected = seen.awaits(turn.name, "connection-pool"), truth.get(turn.name, {})
        found, less_ms = held_in(waits), seen.less_ms(turn.name)
        waited_ms = sum(one.ns for one in waits) / MS
        assert waited_ms == pytest.approx(sum(expected.values()), abs=less_ms), turn
        for holder, ms in expected.items():
            assert found[holder] == pytest.approx(ms, abs=less_ms), (turn, holder)
        for one in waits if expected else ():
            assert one.object == f"SQLAlchemy pool made at {line_of('# made: sqlalchemy', SERVER).rpartition('/')[2]}"
            assert (one.where, one.limit) == (line_of("# asks: sqlalchemy", SERVER), PLACES["sqlalchemy"])
        assert {one.object for one in seen.awaits(turn.name, "db")} == {"sqlite"}


def check_subprocesses(seen: Seen) -> None:
    """A plain tool of mcp 1.x keeps the event loop as long as its program runs: that is no awaiting."""
    stages = {"started": "awaiting", "ran": "busy" if seen.cell.environment == "mcp1" else "executor_run"}
    for row, stage in stages.items():
        for number in range(CALLS[row]):
            name = f"{row}_{number}"
            waits = seen.awaits(name, "subprocess")
            assert {(one.object, one.stage) for one in waits} == {("sleep", stage)}
            assert sum(one.calls for one in waits) == 1
            assert max(waits, key=lambda one: one.ns).where == line_of(f"# asks: {row}", SERVER)
            said = seen.said[name]
            most_ms = (said["got"][0] - said["asked"][0]) / MS
            assert SLEEP_MS - (0 if stage == "busy" else seen.less_ms(name)) <= seen.waited_ms(name, "subprocess")
            assert seen.waited_ms(name, "subprocess") <= most_ms
