"""The end of a collector: what was seen last is handed on, unless its thread gets nowhere."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer

import mcp_probe
from mcp_probe import collector, header, session
from mcp_probe.aggregate.fold import Fold
from mcp_probe.capture import drain
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.collector import (
    ALWAYS_RECORDED,
    BUSY,
    BUSY_DRAIN_S,
    DRAIN_S,
    READ_DRAIN_S,
    SLICE,
    SOON_DRAIN_S,
    Collector,
)
from mcp_probe.model import (
    TRANSPORT_CLOSED,
    End,
    Frame,
    GrowthSample,
    GrowthSites,
    Header,
    LoopSample,
    OpenRequest,
    RequestGroup,
    RequestRecord,
)
from mcp_probe.record import sampling
from mcp_probe.record.assemble import assemble
from mcp_probe.record.file import read_recording
from mcp_probe.session import Probe
from tests.kept import Listening, keep


class BusyLock:
    """The collector's lock, refused ``refusals`` times; before each refusal its holder does ``work``."""

    def __init__(self, lock: Any, refusals: int, work: Callable[[], None]) -> None:
        self._lock = lock
        self._refusals = refusals
        self._work = work

    def acquire(self, timeout: float = -1) -> bool:
        if self._refusals:
            self._refusals -= 1
            self._work()
            return False
        taken: bool = self._lock.acquire(timeout=timeout)
        return taken

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def pretend_busy(collector: Collector, refusals: int, *, gets_on: bool) -> None:
    def work() -> None:
        collector._pace += gets_on

    collector._lock = BusyLock(collector._lock, refusals, work)  # type: ignore[assignment]


def test_detaching_waits_for_a_collector_that_is_slow_but_gets_on() -> None:
    """Three threads that compute leave it the GIL only now and then."""
    probe = Probe()
    kept = keep(probe)
    collector = probe._collector
    pretend_busy(collector, 4, gets_on=True)
    probe.detach()
    assert [frame.reason for frame in kept.frames if isinstance(frame, End)] == ["detached"]


def test_a_session_whose_last_drain_fails_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe()
    kept = keep(probe)

    def fails(**_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(probe._collector, "_drain_all", fails)
    probe.detach()
    assert [frame.reason for frame in kept.frames if isinstance(frame, End)] == ["detached"]


def test_sessions_that_come_and_go_on_many_threads_are_all_heard_and_leave_no_thread() -> None:
    stays = Probe()
    collector, failed = stays._collector, []

    def comes_and_goes() -> None:
        for _ in range(30):
            probe = Probe()
            if probe not in collector._listeners or collector._thread is None:
                failed.append(probe)
            probe.detach()

    threads = [threading.Thread(target=comes_and_goes) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and collector._listeners == (stays,)
    stays.detach()
    assert collector._thread is None


def test_a_collection_on_the_collectors_thread_is_no_hang() -> None:
    """It keeps the GIL for seconds in a large process: whoever waits has waited for one turn by then, not for all."""
    probe = Probe()
    kept = keep(probe)
    pretend_busy(probe._collector, 1, gets_on=False)
    probe.detach()
    assert [frame.reason for frame in kept.frames if isinstance(frame, End)] == ["detached"]


def test_a_detach_and_a_collector_that_finds_a_provider_do_not_wait_for_each_other() -> None:
    """Its thread begins to trace while the detach waits for it: the latest requests were lost."""
    probe = Probe()
    collector, remove = probe._collector, probe._collector.remove
    left: list[bool] = []

    def removing(listener: Any, reason: str) -> None:
        finder = threading.Thread(target=probe.trace_with, args=(None,), daemon=True)
        finder.start()
        finder.join(20)
        left.append(finder.is_alive())
        remove(listener, reason)

    collector.remove = removing  # type: ignore[method-assign]
    probe.detach()
    assert left == [False]


def test_a_collector_that_gets_nowhere_is_given_up_and_the_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    kept = keep(probe)
    pretend_busy(probe._collector, 1_000, gets_on=False)
    with caplog.at_level(logging.WARNING, logger="mcp_probe"):
        probe.detach()
    assert not any(isinstance(frame, End) for frame in kept.frames)
    (message,) = [record.message for record in caplog.records]
    why = "the latest requests are lost: the collector's thread hangs, or got no CPU"
    assert re.fullmatch(rf"mcp_probe: {why}( \(it is in \w+, \w+\.py:\d+\))?", message)


@pytest.mark.parametrize("in_time", [True, False], ids=["enough time", "too little time"])
@pytest.mark.parametrize("by_signal", [False, True], ids=["exit", "signal"])
def test_requests_for_whose_records_an_exit_has_no_time_are_counted(
    by_signal: bool, in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they were lost, and those that were told as open were called unfinished."""
    monkeypatch.setattr(collector, "EXIT_BUDGET_S", 60.0 if in_time else 2.0)
    monkeypatch.setattr(collector, "SLICE", 1)
    monkeypatch.setattr(collector, "ALWAYS_RECORDED", 0)
    many = 200
    begun = threading.Event()

    def slow(*args: Any, **options: Any) -> RequestRecord:
        begun.set()
        time.sleep(0 if in_time else 0.02)  # all together take twice the budget
        return assemble(*args, **options)

    probe = Probe()
    kept = keep(probe)
    hub = probe._hub
    raws = [hub.begin("request", "tools/call", "add", "stdio", probe) for _ in range(many)]
    lost = hub.begin("request", "tools/call", "hang", "stdio", probe)
    probe.snapshot()
    assert {frame.id for frame in kept.frames if isinstance(frame, OpenRequest)} == {raw.id for raw in [*raws, lost]}
    monkeypatch.setattr(drain, "assemble", slow)
    for raw in raws:
        hub.requests.end(raw, now_ns())
    probe._collector.wake()
    assert begun.wait(20)
    try:
        if by_signal:
            hub.process_ends(collector.EXIT_BUDGET_S)
        else:
            probe._collector.remove(probe, "exit")
        frames = list(kept.frames)
    finally:
        monkeypatch.undo()
        probe.detach()
    assert [frame.reason for frame in frames if isinstance(frame, End)] == [TRANSPORT_CLOSED if by_signal else "exit"]
    fold = Fold()
    fold.add_all(frames)
    summary = fold.summary()
    assert {row.name: (row.count, row.unfinished) for row in summary.operations} == {"add": (many, 0), "hang": (1, 1)}
    assert (summary.requests.dropped, summary.requests.unfinished) == (0, 1)
    records = [frame for frame in frames if isinstance(frame, RequestRecord) and frame.name == "add"]
    assert (len(records) == many) is in_time


class HuntThatIsWatched:
    """Stands for a leak hunt; notes which frames had been told when it began to look for lines."""

    exit_patience_s = 60.0

    def __init__(self, told: list[Frame]) -> None:
        self._told = told
        self.is_hurried = False
        self.told_before_lines: list[type] = []

    def hurry(self) -> None:
        self.is_hurried = True

    def settle(self, *, waiting: int, final: bool) -> None: ...

    def on_own_account(self) -> nullcontext[None]:
        return nullcontext()

    def take(self, batch: object) -> None: ...

    def frames(self, now: int, *, final: bool, stands: bool) -> Iterator[Frame]:
        if final and not self.told_before_lines:
            yield GrowthSample(now, "native-shadow", "", (), 0, 0)
            self.told_before_lines = [type(frame) for frame in self._told]
            yield GrowthSites(now, (), ())


def test_the_end_of_a_transport_is_told_before_the_hunt_looks_for_lines() -> None:
    """That takes long beside others that compute, and a client sends a signal 2 s after it has closed the pipe."""
    probe = Probe()
    kept = keep(probe)
    hub = probe._hub
    hub.requests.end(hub.begin("request", "tools/call", "add", "stdio", probe), now_ns())
    hunt = hub.hunt = HuntThatIsWatched(kept.frames)  # type: ignore[assignment]
    try:
        hub.process_ends(60)
        frames = list(kept.frames)
    finally:
        hub.hunt = None
        probe.detach()
    assert hunt.is_hurried
    assert {RequestRecord, GrowthSample, End} <= set(hunt.told_before_lines)
    assert [type(frame) for frame in frames][-2:] == [End, GrowthSites]
    fold = Fold()
    fold.add_all(frames)
    assert fold.summary().complete


def test_a_hunt_looks_for_the_last_time_before_python_lets_threads_go() -> None:
    """What they keep of their own is freed then: a leak in a thread-local list read as none."""
    done = subprocess.run(
        [sys.executable, "-c", KEPT_BY_A_THREAD],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "there: True\n"), done.stderr


KEPT_BY_A_THREAD = """
import threading, weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from mcp_probe.process import PROCESS
from mcp_probe.session import Probe

class Thing: pass
class Hunt:
    exit_patience_s = 30.0
    hurry = on_own_account = lambda self: nullcontext()
    settle = take = lambda self, *args, **kwargs: None
    def frames(self, now, *, final, stands):
        if final:
            print("there:", kept() is not None, flush=True)
            PROCESS.hub.hunt = None
        return iter(())

local, thing = threading.local(), Thing()
kept = weakref.ref(thing)
pool = ThreadPoolExecutor(1)
pool.submit(setattr, local, "thing", thing).result()
probe = Probe()
del thing
PROCESS.hub.hunt = Hunt()
"""


@pytest.mark.parametrize("asked", [False, True], ids=["at the end", "as the transport closes"])
def test_a_signal_that_ends_the_process_waits_for_the_last_look_of_a_hunt(asked: bool) -> None:
    """An SDK's client sends it 2 s after it has closed the pipe. Beside others that compute, a look takes longer."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TO_END, *["asked"][:asked]],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "looked\n"), done.stderr


TOLD_TO_END = """
import os, signal, sys, threading
from contextlib import nullcontext
from mcp_probe.adapters.exits import HeldSignal
from mcp_probe.process import PROCESS
from mcp_probe.session import Probe

held = threading.Event()
class Held(HeldSignal):
    def __enter__(self):
        super().__enter__()
        held.set()
        return self
import mcp_probe.collector
mcp_probe.collector.HeldSignal = Held

class Hunt:
    exit_patience_s = 30.0
    hurry = on_own_account = lambda self: nullcontext()
    settle = take = lambda self, *args, **kwargs: None
    def frames(self, now, *, final, stands):
        if final:
            held.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            print("looked", flush=True)
            PROCESS.hub.hunt = None
        return iter(())

signal.signal(signal.SIGTERM, signal.SIG_DFL)
probe = Probe()
PROCESS.hub.hunt = Hunt()
if sys.argv[1:]:
    PROCESS.hub.transport_closed()
"""


@pytest.mark.parametrize("case", ["nobody waits", "a snapshot waits", "the transport has closed", "many more wait"])
def test_the_collector_lets_others_have_the_interpreter_unless_somebody_waits_for_it(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loop whose calls come one by one a drain of 50 ms once lay within a single call."""
    rests: list[float] = []
    clock = SimpleNamespace(**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")})
    clock.sleep = rests.append
    monkeypatch.setattr(collector, "time", clock)
    monkeypatch.setattr(collector, "READ_RESTS_S", 1_000.0)
    monkeypatch.setattr(collector, "RESTS_S", 1_000.0)
    monkeypatch.setattr(collector, "BACKLOG", 0 if case == "many more wait" else 10_000)
    probe = Probe()
    kept = keep(probe)
    hub, own = probe._hub, probe._collector
    probe.snapshot()
    rests.clear()
    if case == "a snapshot waits":
        own._asking.append(None)
    if case == "the transport has closed":
        own._last_flush = threading.Event()
    for _ in range(20 * SLICE):
        hub.requests.end(hub.begin("request", "tools/call", "add", "stdio", probe), now_ns())
    own.wake()
    try:
        deadline = time.monotonic() + 60
        while len(kept.requests("add")) < 20 * SLICE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if case == "nobody waits":
            assert len(rests) >= 19  # the last one may be yet to come
            assert sum(rests) > 0
        else:
            assert rests == []
    finally:
        own._asking.clear()
        own._last_flush = None
        probe.detach()


def test_frames_of_a_full_recording_are_told_one_by_one_with_rests_that_fill_the_time_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten requests of two frames that take 1 ms each, and 60 ms for them: 2 ms of rest after each."""
    at, rests, told = [0], list[float](), list[int]()

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        at[0] += round(seconds * 1e9)

    def emit(frames: list[str]) -> None:
        told.append(len(frames))
        at[0] += 1_000_000 * len(frames)

    def worked() -> int:
        return at[0] - round(sum(rests) * 1e9)

    monkeypatch.setattr(collector, "time", SimpleNamespace(sleep=sleep, thread_time_ns=worked))
    monkeypatch.setattr(collector, "now_ns", lambda: at[0])
    own = Collector(SimpleNamespace(fail=None, requests=None))  # type: ignore[arg-type]
    monkeypatch.setattr(own, "_thread", SimpleNamespace(is_current=lambda: True))
    monkeypatch.setattr(own, "_frames", lambda raw, weight, *, full: iter(("record", "timeline")))
    monkeypatch.setattr(own, "_slice", 1)
    listener: Any = SimpleNamespace(wants_timelines=True, emit=emit, backlog=lambda: 0)
    some: Any = [(None, 1)] * 5
    own._tell_slices(listener, some, 5, 60_000_000)
    own._tell_slices(listener, some, 0, 60_000_000)
    assert told == [1] * 20
    assert rests == pytest.approx([0.002] * 20)
    rests.clear()
    at[0] = 0
    own._tell_slices(listener, some, 0, 8_000_000)
    assert rests == []  # it needs 10 ms of the 8


def test_an_exit_whose_drain_begins_too_late_still_records_a_small_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A starved machine may need the whole budget to begin: a short session then had not one record."""
    monkeypatch.setattr(collector, "EXIT_BUDGET_S", 0.0)
    probe = Probe()
    kept = keep(probe)
    hub = probe._hub
    for _ in range(ALWAYS_RECORDED + 3 * SLICE):
        hub.requests.end(hub.begin("request", "tools/call", "add", "stdio", probe), now_ns())
    probe._collector._records_until = 0.0
    probe._collector._tell_finished(probe)
    probe.detach()
    records = [frame for frame in kept.frames if isinstance(frame, RequestRecord)]
    counted = sum(frame.count for frame in kept.frames if isinstance(frame, RequestGroup))
    assert (len(records), counted) == (ALWAYS_RECORDED, 3 * SLICE)


def test_a_batch_of_frames_does_not_look_for_packages_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a handful of system calls, and each of those a turn in the queue for the GIL."""
    probe = Probe()
    kept = keep(probe)

    async def work() -> None:
        pass

    async def call_and_look() -> None:
        await probe.profile(work)()
        probe.snapshot()

    looks: list[str] = []
    try:
        anyio.run(call_and_look)
        monkeypatch.setattr(metadata, "version", looks.append)
        monkeypatch.setattr(util, "find_spec", looks.append)
        anyio.run(call_and_look)
    finally:
        probe.detach()
    assert len(kept.requests(work.__qualname__, kind="function")) == 2
    assert looks == []
    assert header._version_of("mcp") == kept.header().sdk_version


def test_whoever_closes_a_transport_does_not_wait_for_a_collector_that_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise LookupError("ours")

    monkeypatch.setattr("mcp_probe.capture.drain.Drain.calibrate", fails)
    probe = Probe()
    collector = probe._collector
    assert collector._thread is not None
    collector._thread.join(100)
    collector.flush()
    assert not collector._flushes, "it would have waited in vain, on the loop's thread"
    probe.detach()


def test_a_thread_that_is_let_go_before_it_begins_does_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would call the hooks to see what they cost, beside whatever probe is attached by then."""
    begin = threading.Event()
    calibrated: list[object] = []

    class Late(Worker):
        def __init__(self, name: str, target: Callable[[], None]) -> None:
            def late() -> None:
                begin.wait(100)
                target()

            super().__init__(name, late)

    monkeypatch.setattr(collector, "Worker", Late)
    monkeypatch.setattr("mcp_probe.capture.drain.Drain.calibrate", lambda drain: calibrated.append(drain))
    probe = Probe()
    thread = probe._collector._thread
    assert thread is not None
    probe.detach()
    begin.set()
    thread.join(100)
    assert not thread.is_alive()
    assert calibrated == []


def adding_server() -> MCPServer:
    server = MCPServer("sums", log_level="ERROR")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server


class Computing(Listening):
    """A listener that computes for 40 ms of each record: on the collector's thread."""

    used_ns = 0

    def take(self, frames: Sequence[Frame]) -> None:
        super().take(frames)
        for frame in frames:
            until = time.thread_time_ns() + 40_000_000 * isinstance(frame, RequestRecord)
            while time.thread_time_ns() < until:
                pass
            self.used_ns += 40_000_000 * isinstance(frame, RequestRecord)


async def test_what_the_collector_computes_is_not_put_down_to_the_servers_threads() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    computing = Computing()
    probe.add_listener(computing)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(6):
                await client.call_tool("add", {"a": 1, "b": 2})
                await anyio.sleep(0.05)
        with anyio.fail_after(60):
            while computing.used_ns < 240_000_000:
                await anyio.sleep(0.05)
    finally:
        probe.detach()
    others = [frame.other_threads_cpu_ns or 0 for frame in computing.heard if isinstance(frame, LoopSample)]
    assert others and sum(others) < computing.used_ns / 3


async def test_a_listener_hears_the_record_of_each_request() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    hearing = Listening()
    probe.add_listener(hearing)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for number in range(20):
                await client.call_tool("add", {"a": 1, "b": 2} if number % 5 else {"a": "x"})
            row = next(row for row in probe.snapshot().operations if row.name == "add")
    finally:
        probe.detach()
    heard = [frame for frame in hearing.heard if isinstance(frame, RequestRecord) and frame.name == "add"]
    assert (row.count, row.errors) == (20, 4)
    assert sorted(record.outcome for record in heard) == ["ok"] * 16 + ["tool_error"] * 4
    assert {record.weight for record in heard} == {1}
    assert isinstance(hearing.heard[0], Header)


@pytest.mark.parametrize(
    ("is_read", "pauses"),
    [(False, [DRAIN_S, DRAIN_S, BUSY_DRAIN_S]), (True, [READ_DRAIN_S, SOON_DRAIN_S, SOON_DRAIN_S])],
    ids=["nobody reads along", "a recording"],
)
def test_the_collector_sleeps_longer_where_nothing_hurries_it(is_read: bool, pauses: list[float]) -> None:
    probe = Probe()
    if is_read:
        keep(probe)
    found = []
    try:
        for taken in (0, BUSY, BUSY + 1):
            probe._collector._taken = taken
            found.append(probe._collector._pause_s())
    finally:
        probe.detach()
    assert found == pauses


async def test_what_a_drain_has_taken_is_counted() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(5):
                await client.call_tool("add", {"a": 1, "b": 2})
            probe.snapshot()
            assert probe._collector._taken >= 4  # the last may not be written yet
            probe.snapshot()
            assert probe._collector._taken <= 1
    finally:
        probe.detach()


async def test_a_queue_that_fills_wakes_the_collector_before_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BUFFER", 64)
    for pause in ("DRAIN_S", "BUSY_DRAIN_S"):
        monkeypatch.setattr(collector, pause, 3600.0)
    server = adding_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(160):
                await client.call_tool("add", {"a": 1, "b": 2})
                with anyio.fail_after(20):
                    while probe.backlog() >= 32:
                        await anyio.sleep(0.001)
    finally:
        monkeypatch.undo()
        probe.detach()
    assert len(kept.requests("add")) == 160


async def test_what_a_full_queue_has_no_room_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BUFFER", 64)
    for pause in ("DRAIN_S", "BUSY_DRAIN_S", "SOON_DRAIN_S"):
        monkeypatch.setattr(collector, pause, 3600.0)
    monkeypatch.setattr(Collector, "wake", lambda self: None)
    server = adding_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for number in range(160):
                await client.call_tool("add", {"a": 1, "b": 2} if number % 5 else {"a": "x"})
        summary = probe.snapshot()
    finally:
        monkeypatch.undo()
        probe.detach()
    [row] = [row for row in summary.operations if row.name == "add"]
    assert (row.count, row.errors, summary.requests.dropped) == (160, 32, 0)
    groups = [frame for frame in kept.frames if isinstance(frame, RequestGroup) and frame.name == "add"]
    assert sum(group.count for group in groups) == 160 - len(kept.requests("add")) >= 96
    assert {group.outcome for group in groups} == {"ok", "tool_error"}
    assert summary.requests.recorded == 64
    assert "requests looked at in full; counts and durations are of all" in summary.verdict.sentence


async def test_at_a_rate_too_high_for_records_counts_and_durations_are_of_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The loop only serves, as fast as it goes; so few records are allowed that any machine sends more."""
    monkeypatch.setattr(sampling, "RECORDS_A_DRAIN", 16)
    monkeypatch.setattr(session, "BUFFER", 256)
    server = adding_server()

    @server.tool()
    async def echo(text: str) -> str:
        return text

    recording = tmp_path / "saturated.jsonl"
    probe = mcp_probe.attach(server, record=str(recording))
    made: Counter[str] = Counter()
    until = time.monotonic() + 2.0

    async def caller(client: Client) -> None:
        while time.monotonic() < until:
            name = "add" if sum(made.values()) % 3 else "echo"
            made[name] += 1
            await client.call_tool(name, {"a": 1, "b": 2} if name == "add" else {"text": "x"})

    try:
        async with Client(InMemoryTransport(server)) as client, anyio.create_task_group() as callers:
            for _ in range(20):
                callers.start_soon(caller, client)
        summary = probe.snapshot()
        assert probe.fold is not None
        durations = {tally.name: tally.totals.least.count for tally in probe.fold._settled().operations.by_key.values()}
    finally:
        probe.detach()
    rows = {row.name: row for row in summary.operations}
    assert {name: rows[name].count for name in made} == dict(made)
    assert {name: durations[name] for name in made} == dict(made)
    assert (summary.requests.dropped, summary.requests.errors) == (0, 0)
    recorded = summary.requests.recorded
    assert recorded is not None and 0 < recorded < summary.requests.count
    assert f"1 of {round(summary.requests.count / recorded)} requests looked at in full" in summary.verdict.sentence
    assert rows["add"].quality["busy"].tag == "estimate"
    assert rows["add"].budget_ms.busy is not None and rows["add"].budget_ms.busy > 0
    again = Fold()
    again.add_all(read_recording(recording))
    assert {row.name: row.count for row in again.summary().operations if row.name in made} == dict(made)
    assert again.summary().requests == summary.requests


def test_no_frame_comes_while_a_snapshot_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that changes while it is summed up ended ``snapshot`` with a RuntimeError."""
    inside, most = 0, 0
    entering = threading.Lock()

    def slowly(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal inside, most
            with entering:
                inside += 1
                most = max(most, inside)
            time.sleep(0.002)
            try:
                return method(*args, **options)
            finally:
                with entering:
                    inside -= 1

        return run

    monkeypatch.setattr(Fold, "add_all", slowly(Fold.add_all))
    monkeypatch.setattr(Fold, "summary", slowly(Fold.summary))
    probe = Probe()
    keep(probe)  # frames come as they are
    hub = probe._hub
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            hub.requests.end(hub.begin("request", "tools/call", "add", "stdio", probe), now_ns())
            probe._collector.wake()
            time.sleep(0.0005)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        counts = [probe.snapshot().requests.recorded or 0 for _ in range(30)]
    finally:
        ended.set()
        worker.join()
        probe.detach()
    assert counts == sorted(counts)
    assert counts[-1] > 0
    assert most == 1
