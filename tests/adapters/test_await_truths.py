"""The truths of docs/awaits.md from a client's side: real servers on each SDK, transport and loop.

The tools of ``await_truth_server.py`` note for themselves when they asked for something, got it and gave it back. What
was recorded of them must say the same: how long each waited, for what, at which line, and which requests held it.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.model import BACKGROUND_OPERATION, UNKNOWN_HOLDER, Await, RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.ports import free_port
from tests.turns import MS, Turn, held_for, held_in

HERE = Path(__file__).parent
SERVER = HERE / "await_truth_server.py"
CLOSE_MS = 15.0
"""Or 5 % of it: a busy machine may stop the thread between the tool's stamp and the probe's."""

HELD = {  # row -> kind, label, places, line at which it was made
    "lock": ("lock", "asyncio.Lock", 1),
    "semaphore": ("semaphore", "asyncio.Semaphore", 2),
    "before": ("lock", "asyncio.Lock", 1),
    "blocked": ("lock", "asyncio.Lock", 1),
    "anyio_lock": ("lock", "anyio.Lock", 1),
    "anyio_semaphore": ("semaphore", "anyio.Semaphore", 2),
    "anyio_limiter": ("limiter", "anyio.CapacityLimiter", 2),
}
CALLS = {
    "lock": 10, "semaphore": 8, "blocked": 10, "before": 3, "anyio_lock": 5, "anyio_semaphore": 6, "anyio_limiter": 6,
    "thread": 3, "background": 1, "queue": 4, "stream": 4, "slept": 3, "job": 4,
}  # fmt: skip
JOBS = (
    ("http", "http", 0.5),
    ("subprocess", "subprocess", 0.5),
    ("lock" if sys.version_info >= (3, 11) else "other", "lock", 0.1),
    ("other", "sqlite", 0.0),
)
"""Of each call of ``job``: kind, mark of the line, and share that is surely named of what its worker thread waits for.

Hooks see the first two. A busy machine keeps the thread that looks from looking; SQLite wakes up to try again, so that
it must be looked at twice in between.
"""
FUTURE_MS = 120.0
"""A timer resolves it: what comes on top until its task runs is no awaiting."""
FUTURES = ("directly", "in_async_for", "in_context_manager", "gathered", "shielded", "waited_for")


@dataclass(frozen=True)
class Cell:
    """``environment``: in .envs, or an interpreter of .cells."""

    environment: str
    transport: str
    loop: str = "asyncio"
    native: bool = True

    def __str__(self) -> str:
        return "-".join([self.environment, self.transport, self.loop, "native" if self.native else "pure"])


QUICK = [
    Cell("own", "stdio"),
    Cell("own", "http", "uvloop", native=False),
    Cell("own", "stdio", "trio"),
    Cell("mcp1", "http"),
    Cell("mcp1", "stdio", "trio", native=False),
]
ALL = [
    Cell(environment, transport, loop, native)
    for environment in ("own", "mcp1")
    for transport, loops in (("stdio", ("asyncio", "uvloop", "trio")), ("http", ("asyncio", "uvloop")))
    for loop in loops
    for native in (True, False)
] + [
    # Before CPython 3.12 ``wait_for`` is a task of its own.
    Cell(f"x86-64-{version}-cell-mcp2.3", transport, native=False)
    for version in ("3.10", "3.12", "3.13")
    for transport in ("stdio", "http")
]


class Seen:
    """What tools said, and what was recorded, of one cell."""

    def __init__(self, client: RawClient, loop: str) -> None:
        self.loop = loop
        self.rows = [row for row in CALLS if not is_of_asyncio(row) or loop != "trio"]
        self.summary = client.summary
        self.said = {id: said_in(answer) for id, (_, answer) in client.answers.items() if "_" in id}
        self.records = {
            frame.name: frame
            for frame in read_recording(client.recording)
            if isinstance(frame, RequestRecord) and frame.name is not None
        }

    def turns(self, row: str) -> list[Turn]:
        """One a call."""
        found = []
        for number in range(CALLS[row]):
            said = self.said[f"{row}_{number}"]
            found.append(Turn(f"{row}_{number}", *(said[what][0] for what in ("asked", "got", "gave_back"))))
        return found

    def awaits(self, name: str, *kinds: str) -> list[Await]:
        return [one for one in self.records[name].awaits or () if one.kind in kinds or not kinds]

    def operation(self, name: str) -> dict[str, Any]:
        [found] = [row for row in self.summary["operations"] if row["name"] == name]
        return dict(found)


def is_of_asyncio(row: str) -> bool:
    return not row.startswith("anyio") and row not in ("thread", "background", "stream", "slept", "job", "cancelled")


def said_in(answer: dict[str, Any]) -> dict[str, Any]:
    content = answer.get("result", {}).get("content", [])
    return dict(json.loads(content[0]["text"])) if content and content[0]["text"].startswith("{") else {}


def line_of(mark: str, server: Path = SERVER) -> str:
    lines = server.read_text("utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
    return f"{server}:{number}"


def python_of(cell: Cell, env_python: Callable[[str], Path]) -> Path:
    if cell.environment == "own":
        return Path(os.path.join(sysconfig.get_path("scripts"), "python"))
    if not cell.environment.startswith("x86"):
        return env_python(cell.environment)
    python = HERE.parent.parent / ".cells" / cell.environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{cell.environment} is not there: `make matrix` makes it")
    return python


def client_of(cell: Cell, python: Path, folder: Path, lent: str) -> RawClient:
    port = free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": lent} | ({} if cell.native else {"MCP_PROBE_NATIVE": "0"})
    command = [str(python), str(SERVER), cell.transport, str(port), cell.loop]
    if cell.transport == "stdio":
        return StdioClient(command, folder, environment, profiled=True)
    return HttpClient(command, folder, environment, port, "/mcp", profiled=True)


def play(client: RawClient, loop: str) -> None:
    """All rows, one after the other; what looks name at the same time as something else."""
    for row in ("lock", "semaphore", "before", "anyio_lock", "anyio_semaphore", "anyio_limiter"):
        if loop != "trio" or not is_of_asyncio(row):
            together(client, row, CALLS[row])
    for row in ("thread", "background", "queue", "stream", "slept", "job"):
        if loop != "trio" or not is_of_asyncio(row):
            together(client, row, CALLS[row])
    if loop != "trio":
        together(client, "blocked", 10, client.call("block_0", "block_0"))
        for row in FUTURES:
            together(client, row, 3)
        for number in range(2):
            together(client, "left_behind", 1, first=number)
        for number in range(3):
            together(client, "given_by_others", 1, first=number)
        together(client, "given_by_others", 2, first=3)
        together(client, "collected", 3)
    client.call("cancelled_0", "cancelled_0")
    client.wait_until_it_waits()
    client.call("cancelled_1", "cancelled_1")
    time.sleep(0.1)
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "cancelled_0"}})
    client.wait_for("cancelled_1")


def together(client: RawClient, row: str, calls: int, *others: str, first: int = 0) -> None:
    names = [f"{row}_{number}" for number in range(first, first + calls)]
    for name in names:
        client.call(name, name)
    client.wait_for(*names, *others)


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This probe, and what the other environments have not: loops, for those that run the same Python, and urllib3."""
    folder = tmp_path_factory.mktemp("lent") / "site-packages"  # what is in there is nobody's own code
    folder.mkdir()
    for name in ("trio", "uvloop", "sortedcontainers", "outcome", "sniffio", "attr", "attrs", "urllib3"):
        (folder / name).symlink_to(Path(sysconfig.get_paths()["purelib"]) / name)
    return f"{HERE.parent.parent}{os.pathsep}{folder}"


def see(cell: Cell, python: Path, folder: Path, lent: str) -> Seen:
    lent = lent if cell.environment != "own" else lent.split(os.pathsep)[0]
    with client_of(cell, python, folder, lent) as client:
        play(client, cell.loop)
    seen = Seen(client, cell.loop)
    assert seen.summary["probe"]["disabled_hooks"] == []
    assert (seen.summary["probe"]["accelerator"] == "active") == cell.native
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("cell", QUICK, ids=str)
def test_what_calls_waited_for_is_what_they_say_themselves(
    cell: Cell, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    check_cell(cell, python_of(cell, env_python), tmp_path, lent)


@pytest.mark.endurance
@pytest.mark.parametrize("cell", [cell for cell in ALL if cell not in QUICK], ids=str)
def test_so_it_is_on_each_sdk_transport_and_loop(
    cell: Cell, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    check_cell(cell, python_of(cell, env_python), tmp_path, lent)


def check_cell(cell: Cell, python: Path, folder: Path, lent: str) -> None:
    """A machine that stops the server for a while makes other waits than the tools meant: such a run is made again."""
    for again in range(RUNS):
        place = folder / str(again)
        place.mkdir()
        try:
            return check(see(cell, python, place, lent))
        except (AssertionError, ValueError):
            if again == RUNS - 1:
                raise


def check(seen: Seen) -> None:
    for row in HELD:
        if row in seen.rows:
            check_held(seen, row)
    check_threads(seen)
    check_jobs(seen)
    check_background(seen)
    check_consumers(seen, "stream")
    check_slept(seen)
    check_cancelled(seen)
    if seen.loop != "trio":
        check_consumers(seen, "queue")
        check_left_behind(seen)
        check_futures(seen)
        check_blocked(seen)
        check_before(seen)
        check_given_by_others(seen)
    check_no_instant_counts_twice(seen)


RUNS = 3


def close(ms: float) -> float:
    return max(CLOSE_MS, 0.05 * ms)


def check_held(seen: Seen, row: str) -> None:
    """Each wait is as long, and was held by those requests, as the tools say."""
    kind, label, places = HELD[row]
    turns = seen.turns(row)
    truth = held_for(turns, places)
    assert len(truth) == len(turns) - places
    late_ms = sum(seen.said[turn.name]["released"] - turn.gave_back for turn in turns) / MS
    for turn in turns:
        mine, expected = seen.awaits(turn.name, kind), truth.get(turn.name, {})
        found = held_in(mine)
        waited_ms, holders_ms = sum(one.ns for one in mine) / MS, sum(found.values())
        off_ms = late_ms + no_wait_ms(seen.records[turn.name])
        assert holders_ms == pytest.approx(waited_ms, abs=0.01) or not expected
        assert waited_ms == pytest.approx(sum(expected.values()), abs=close(waited_ms) + off_ms), turn
        assert {name for name, ms in expected.items() if ms > CLOSE_MS + off_ms} <= set(found)
        for holder, ms in found.items():
            assert ms == pytest.approx(expected.get(holder, 0.0), abs=close(ms) + off_ms), (turn, holder)
        for one in mine if expected else ():
            check_object(seen, row, one, label)
            assert {seen.records[part.operation].id == part.request for part in one.holders} == {True}
            assert {part.where for part in one.holders} == {one.where}


def no_wait_ms(record: RequestRecord) -> float:
    """In which it could not wait: it ran, or the loop had no turn for it although it had what it asked for."""
    budget = record.budget
    return sum(filter(None, (budget.busy, budget.ready_wait, budget.gc))) / MS


def check_object(seen: Seen, row: str, one: Await, label: str) -> None:
    if row == "before":
        assert one.object == "asyncio.Lock await_truth_server.BEFORE"
    else:
        if (label, seen.loop) == ("anyio.CapacityLimiter", "trio"):
            label = "trio.CapacityLimiter"  # anyio's hands the call on without a method of its own
        made = line_of(f"# made: {row}").rpartition("/")[2]
        assert one.object == f"{label} made at {made}"
    assert one.where == line_of("# takes")


def check_threads(seen: Seen) -> None:
    """Whoever waits for a worker thread is said to wait for a worker thread."""
    waited_ms = 0.0
    for number in range(3):
        said, record = seen.said[f"thread_{number}"], seen.records[f"thread_{number}"]
        truth_ms = (said["began"][0] - said["asked"][0]) / MS
        assert (record.budget.executor_wait or 0) / MS == pytest.approx(truth_ms, abs=close(truth_ms))
        waited_ms += truth_ms
    assert waited_ms > 300
    assert not [one for number in range(3) for one in seen.awaits(f"thread_{number}", "limiter", "thread")]


def check_jobs(seen: Seen) -> None:
    """What a worker thread waits for has the same name on each loop."""
    for number, (kind, mark, share) in enumerate(JOBS):
        said, where = seen.said[f"job_{number}"], line_of(f"# waits: {mark}")
        truth_ms = (said["got"][0] - said["asked"][0]) / MS
        mine = [one for one in seen.awaits(f"job_{number}", kind) if one.where == where]
        named_ms = sum(one.ns for one in mine) / MS
        assert {(one.object, one.stage) for one in mine} <= {(said["object"], "executor_run")}, mark
        assert share * truth_ms <= named_ms < truth_ms + close(truth_ms), mark


def check_background(seen: Seen) -> None:
    [one] = seen.awaits("background_0", "lock")
    check_alone(seen, "background_0", one)
    assert {(part.request, part.operation) for part in one.holders} == {(0, BACKGROUND_OPERATION)}
    assert {part.where for part in one.holders} == {line_of("# takes: background")}


def check_alone(seen: Seen, name: str, one: Await) -> None:
    """It waited until its only holder gave it back."""
    said = seen.said[name]
    truth_ms = (said["gave_back"][0] - said["asked"][0]) / MS
    assert one.ns / MS == pytest.approx(truth_ms, abs=close(truth_ms) + no_wait_ms(seen.records[name]))
    assert sum(held_in([one]).values()) == pytest.approx(one.ns / MS, abs=0.01)


def check_left_behind(seen: Seen) -> None:
    """A task that outlives its request holds for nobody else."""
    [one] = seen.awaits("left_behind_1", "lock")
    check_alone(seen, "left_behind_1", one)
    assert {part.where for part in one.holders} == {line_of("# takes: left_behind")}
    assert {(part.request, part.operation) for part in one.holders} == {(0, BACKGROUND_OPERATION)}


def check_consumers(seen: Seen, row: str) -> None:
    """Waits are as the producer's schedule says, and count once: what a queue is made of has no name."""
    total_ms = 0.0
    for number in range(1, 4):
        said = seen.said[f"{row}_{number}"]
        mine = seen.awaits(f"{row}_{number}")
        assert {one.kind for one in mine if one.ns > MS} <= {"queue"}
        assert {one.where for one in mine if one.ns > MS} <= {line_of(f"# takes: {row}")}
        named_ms = sum(one.ns for one in mine) / MS
        total_ms += named_ms
        assert named_ms <= sum(took - asked for asked, took in zip(said["asked"], said["took"], strict=True)) / MS
        for one in mine:  # how long each of them was is known where it was kept by itself
            if one.count == 1:
                puts = [(put - one.from_ns) / MS for put in said["got"]]
                assert min(abs(one.ns / MS - truth_ms) for truth_ms in puts) < close(one.ns / MS)
    assert total_ms > 0


def check_slept(seen: Seen) -> None:
    for number in range(3):
        said = seen.said[f"slept_{number}"]
        for one in seen.awaits(f"slept_{number}"):
            if one.ns > MS:
                assert (one.kind, one.object, one.where) == ("sleep", "sleep", line_of("# takes: slept"))
                assert one.ns / MS < (said["got"][0] - said["asked"][0]) / MS + 1


def check_futures(seen: Seen) -> None:
    named = 0
    for row in FUTURES:
        # Its inner task may be looked at too late. That what awaits the shield waits for a task does not show.
        shield = [line_of("# takes: shield")] if row == "shielded" else []
        for number in range(3):
            for one in seen.awaits(f"{row}_{number}", "other", "task"):
                if one.kind == "task":  # nobody has looked at the inner task itself
                    assert one.object == "its own tasks", row
                elif one.ns > 5 * MS:
                    assert one.where in {line_of("# takes: future"), *shield}
                    assert one.ns / MS == pytest.approx(FUTURE_MS, abs=25.0)
                    named += 1
    assert named >= 6  # of 18: a busy machine may let nobody look in 120 ms


def check_blocked(seen: Seen) -> None:
    """The holder was ready and could not run; those who waited for it were not, and its blocker is their root."""
    turns = sorted(seen.turns("blocked"), key=lambda turn: turn.got)
    holder, said = turns[0].name, seen.said["block_0"]
    blocked_ms = (said["gave_back"][0] - said["got"][0]) / MS
    ready_ms = (seen.records[holder].budget.ready_wait or 0) / MS
    assert blocked_ms - 20 - CLOSE_MS < ready_ms < blocked_ms + CLOSE_MS
    for turn in turns[1:]:
        assert (seen.records[turn.name].budget.ready_wait or 0) / MS < ready_ms / 2  # of what a busy machine adds
        [row] = [row for row in seen.operation(turn.name)["awaits"] if row["kind"] == "lock"]
        blocked = {root["name"]: root for root in row["root"] if root["kind"] == "blocked"}
        root = blocked.pop("block_0")
        assert root["where"] == line_of("# blocks")
        assert root["ms"] == pytest.approx(ready_ms, abs=close(ready_ms))
        assert sum(other["ms"] for other in blocked.values()) < ready_ms / 2, blocked  # of what a busy machine adds


def check_before(seen: Seen) -> None:
    """Over HTTP any of the three may be the first, which waits for nobody."""
    rows = [row for number in range(3) for row in seen.operation(f"before_{number}")["awaits"] if row["kind"] == "lock"]
    assert [row["quality"] for row in rows] == ["exact"] * 2


def check_given_by_others(seen: Seen) -> None:
    [one] = seen.awaits("given_by_others_3", "semaphore")
    assert set(held_in([one])) == {UNKNOWN_HOLDER}


def check_cancelled(seen: Seen) -> None:
    """It holds until it gives back, and nobody else is said to have held it."""
    [one] = seen.awaits("cancelled_1", "lock")
    check_alone(seen, "cancelled_1", one)
    assert {(part.request, part.operation) for part in one.holders} == {(seen.records["cancelled_0"].id, "cancelled_0")}
    assert seen.records["cancelled_0"].outcome == "cancelled"


def check_no_instant_counts_twice(seen: Seen) -> None:
    for record in seen.records.values():
        assert record.awaits is not None and record.budget.awaiting is not None
        assert sum(one.ns for one in record.awaits if one.stage == "awaiting") <= record.budget.awaiting
        whole = sorted((one.from_ns, one.to_ns) for one in record.awaits if one.count == 1 and one.ns)
        whole = [span for span in whole if span[1] > span[0]]
        for one in record.awaits:
            assert sum((part.to_ns - part.from_ns) / part.among for part in one.holders) <= one.ns + 1
            assert one.to_ns - one.from_ns >= one.ns or one.count > 1
        for (_, end), (begin, _) in pairwise(whole):
            assert begin >= end, record
