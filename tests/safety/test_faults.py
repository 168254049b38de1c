"""A probe whose parts raise: the server answers as if there were none, and the fault is disabled, logged and told."""

from __future__ import annotations

import gc
import importlib
import itertools
import logging
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

import mcp_probe
from mcp_probe import clock, native
from mcp_probe.capture.drain import Drain
from mcp_probe.model import End, Header
from mcp_probe.session import Probe, attach_everywhere
from tests.kept import Kept, Log, keep
from tests.safety.scenario import make_server, run_scenario

ALL = ("asyncio", "uvloop", "trio")

# What to break, and the loops on which that differs.
PARTS_OF_BOTH: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mcp_probe.capture.loop_monitor:LoopMonitor.split", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.pause", ("asyncio",)),
    ("mcp_probe.capture.loop_monitor:LoopMonitor._keep", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor._charge", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.take_polls", ("asyncio",)),
    ("mcp_probe.capture.hub:Hub.begin", ("asyncio",)),
    ("mcp_probe.capture.hub:Hub.monitor", ALL),
    ("mcp_probe.capture.hub:Hub.add_monitor", ALL),
    ("mcp_probe.capture.messages:Channel._arrived_by", ("asyncio",)),
    ("mcp_probe.capture.live_requests:LiveRequests.settle", ("asyncio",)),
    ("mcp_probe.capture.live_requests:Finished.put", ALL),
    ("mcp_probe.capture.stdin_reads:LineStamps.read", ("asyncio",)),
    ("mcp_probe.capture.stdin_reads:LineStamps.consumed", ("asyncio",)),
    ("mcp_probe.capture.executor:Pools.known", ("asyncio",)),
    ("mcp_probe.capture.executor:Pools.submit", ALL),
    ("mcp_probe.capture.executor:Pools._note", ALL),
    ("mcp_probe.capture.executor:Pools.resumed", ALL),
    ("mcp_probe.capture.executor:Pools.samples", ("asyncio",)),
    ("mcp_probe.capture.watchdog:Watch.look", ("asyncio",)),
    ("mcp_probe.capture.drain:Drain.calibrate", ("asyncio",)),
    ("mcp_probe.capture.drain:Drain.steps", ("asyncio",)),
    ("mcp_probe.capture.drain:Drain.loops", ("asyncio",)),
    ("mcp_probe.capture.drain:Drain.process", ("asyncio",)),
    ("mcp_probe.adapters.uvloop_loop:Followed.__init__", ("uvloop",)),
    ("mcp_probe.adapters.trio_loop:TrioMonitor._stamp", ("trio",)),
    ("mcp_probe.adapters.stdio:StdioHooks.install", ("asyncio",)),
    ("mcp_probe.adapters.http_transports:HttpHooks.install", ("asyncio",)),
    ("mcp_probe.adapters.asyncio_loop:AsyncioHooks.install", ("asyncio",)),
    ("mcp_probe.adapters.threads:ThreadHooks.install", ("asyncio",)),
)
# Only the Python twins call these; other loops than asyncio call the accelerator's own, which cannot be patched.
PARTS_OF_PYTHON: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mcp_probe.capture.loop_monitor:LoopMonitor.begin", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.close", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.begin_poll", ALL),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.end_poll", ALL),
    ("mcp_probe.capture.hub:Hub.ready", ("asyncio",)),
    ("mcp_probe.capture.live_requests:LiveRequests.open", ("asyncio",)),
    ("mcp_probe.capture.live_requests:LiveRequests.finished", ("asyncio",)),
    ("mcp_probe.capture.live_requests:LiveRequests.end", ("asyncio",)),
    ("mcp_probe.capture.messages:Channel.received", ALL),
    ("mcp_probe.capture.messages:Channel.sending", ALL),
    ("mcp_probe.capture.messages:Channel.handed_over", ("asyncio",)),
    ("mcp_probe.capture.messages:Channel.taken", ("asyncio",)),
    ("mcp_probe.capture.messages:Channel.flushed", ("asyncio",)),
    ("mcp_probe.capture.stdio_jobs:now_ns", ("asyncio",)),
    ("mcp_probe.capture.current:Exchange.__init__", ("asyncio",)),
    ("mcp_probe.adapters.asgi:now_ns", ("asyncio",)),
    ("mcp_probe.adapters.asyncio_handles:_stamp_now", ("asyncio",)),
    ("mcp_probe.adapters.asyncio_handles:_begin", ("asyncio",)),
    ("mcp_probe.adapters.asyncio_handles:_end", ("asyncio",)),
    ("mcp_probe.adapters.asyncio_loop:_begin_poll", ("asyncio",)),
)
# Where the accelerator comes back to Python, or other loops' hooks call it from there.
PARTS_OF_THE_ACCELERATOR: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mcp_probe.capture.loop_monitor:LoopMonitor.begin", ("uvloop", "trio")),
    ("mcp_probe.capture.loop_monitor:LoopMonitor.close", ("uvloop", "trio")),
    ("mcp_probe.capture.messages:Channel.received", ALL),
    ("mcp_probe.capture.messages:Channel.sending", ALL),
    ("mcp_probe.capture.messages:Channel.handed_over", ("asyncio",)),
    ("mcp_probe.capture.messages:Channel.taken", ("asyncio",)),
    ("mcp_probe.capture.memory_tier:NativeLender.enter", ALL),
    ("mcp_probe.capture.memory_tier:NativeLender.leave", ("asyncio",)),
    ("mcp_probe.capture.memory_tier:Memory._native_use", ("asyncio",)),
)
if native.core is not None:
    PARTS = (*PARTS_OF_BOTH, *PARTS_OF_THE_ACCELERATOR)
elif native.absence.startswith("switched off"):  # the second run of `make test`: the first has broken the others
    PARTS = PARTS_OF_PYTHON
else:
    PARTS = (*PARTS_OF_BOTH, *PARTS_OF_PYTHON)
CALLED_ONCE = frozenset({"pause", "add_monitor", "read", "calibrate", "install", "settle", "_keep", "_charge", "look"})


class Fault(Exception):
    """Raised by the part that was broken."""


class Breaker:
    """Makes one function of ours raise from its ``after``-th call on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, part: str, after: int) -> None:
        self.hits = 0
        module_name, path = part.split(":")
        owner: Any = importlib.import_module(module_name)
        *outer, name = path.split(".")
        for step in outer:
            owner = getattr(owner, step)
        original = getattr(owner, name)  # a twin may have it from its base
        calls = itertools.count()

        def broken(*args: Any, **kwargs: Any) -> Any:
            if next(calls) < after:
                return original(*args, **kwargs)
            self.hits += 1
            raise Fault(part)

        monkeypatch.setattr(owner, name, broken)


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("mcp_probe")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


_bare: dict[str, Any] = {}


def bare(loop: str) -> Any:
    if loop not in _bare:
        _bare[loop] = run_scenario(make_server(), loop)
    return _bare[loop]


def assert_told(probe: Any, hooks: dict[str, str], log: Log) -> None:
    """Each hook that was given up says why, and was logged exactly once."""
    disabled = [name for name, state in hooks.items() if "Fault" in state]
    assert disabled, hooks
    for name in disabled:
        assert re.fullmatch(r"disabled after Fault in test_faults\.py:\d+", hooks[name])
    logged = [message for message in log.messages if message.endswith("is disabled")]
    assert sorted(logged) == sorted(f"mcp_probe: hook {name} is disabled" for name in disabled)


CASES = [
    pytest.param(part, loop, after, id=f"{part.rsplit(':')[-1]}-{loop}-{'later' if after else 'at once'}")
    for part, loops in PARTS
    for loop in loops
    for after in ((0,) if part.rsplit(".")[-1] in CALLED_ONCE else (0, 7))
]


@pytest.mark.parametrize(("part", "loop", "after"), CASES)
def test_part_that_raises_leaves_the_answers_as_they_are(
    part: str, loop: str, after: int, monkeypatch: pytest.MonkeyPatch, log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = bare(loop)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    breaker = Breaker(monkeypatch, part, after)
    server = make_server()
    probe = mcp_probe.attach(server)
    keep(probe)
    try:
        answers = run_scenario(server, loop)
        for _ in range(20):  # the collector's own parts are reached when it next wakes
            if breaker.hits:
                break
            probe.snapshot()
    finally:
        hooks = probe._hub.hooks
        probe.detach()
    assert answers == expected
    assert breaker.hits > 0, "the scenario does not reach this part"
    assert_told(probe, dict(hooks), log)
    assert unraisable == []
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("loop", ALL)
def test_clock_that_fails_in_the_middle_leaves_the_answers_as_they_are(
    loop: str, monkeypatch: pytest.MonkeyPatch, log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every hook reads the clock, so this breaks all of them, each at its next use."""
    expected = bare(loop)
    broken = False
    calls = itertools.count()

    def now_ns() -> int:
        if broken:
            raise Fault("clock")
        return real()

    real = clock.now_ns
    for name, module in list(sys.modules.items()):
        if name.startswith("mcp_probe") and getattr(module, "now_ns", None) is real:
            monkeypatch.setattr(module, "now_ns", now_ns)

    def after() -> None:
        nonlocal broken
        broken = next(calls) >= 4

    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    server = make_server()
    probe = mcp_probe.attach(server)
    try:
        answers = run_scenario(server, loop, after)
        gc.collect()
    finally:
        hooks = dict(probe._hub.hooks)
        probe.detach()
    broken = False
    assert answers == expected
    assert len([state for state in hooks.values() if "Fault" in state]) >= 3
    assert len(log.messages) == len(set(log.messages))
    assert unraisable == []
    assert capfd.readouterr().out == ""


class BrokenSink:
    def __init__(self, fault: Exception) -> None:
        self.fault = fault
        self.writes = 0

    def write(self, lines: list[bytes]) -> None:
        self.writes += 1
        raise self.fault

    def close(self) -> None:
        raise self.fault


@pytest.mark.parametrize("fault", [OSError("disk full"), ValueError("closed file"), Fault("sink")], ids=repr)
def test_sink_that_raises_is_dropped_and_costs_no_other_sink_anything(fault: Exception, log: Log) -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    broken = BrokenSink(fault)
    probe.add_sink(broken)
    kept = keep(probe)
    answers = run_scenario(server, "asyncio")
    probe.snapshot()
    hooks = dict(probe._hub.hooks)
    probe.detach()
    assert answers == bare("asyncio")
    assert broken.writes == 1
    assert len(kept.requests("add")) >= 4
    assert hooks["recording"].startswith(f"disabled after {type(fault).__name__} in test_faults.py:")
    assert log.messages.count("mcp_probe: hook recording is disabled") == 1


def test_fault_is_in_the_summary_and_in_the_recording(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    Breaker(monkeypatch, "mcp_probe.capture.messages:Channel.received", 3)
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    run_scenario(server, "asyncio")
    summary = probe.snapshot()
    probe.detach()
    state = dict(kept.header().hooks)["queueing"]
    assert state.startswith("disabled after Fault in ")
    assert f"queueing: {state}" in summary.probe.disabled_hooks


@pytest.mark.parametrize(
    "part",
    ["capture.hub:Hub.begin", "capture.loop_monitor:LoopMonitor.enter", "capture.live_requests:LiveRequests.end"],
)
def test_profiled_function_runs_where_the_probe_of_it_raises(
    part: str, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setattr(Drain, "calibrate", lambda drain: None)  # it makes requests of its own, at a time of its own
    Breaker(monkeypatch, f"mcp_probe.{part}", 0)
    probe = Probe()
    fault = LookupError("its own")

    @probe.profile
    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        if number < 0:
            raise fault
        return 2 * number

    async def twice() -> list[int]:
        with pytest.raises(LookupError) as caught:
            await double(-1)
        assert caught.value is fault
        return [await double(1), await double(2)]

    answer = anyio.run(twice)
    hooks = dict(probe._hub.hooks)
    probe.detach()
    assert answer == [2, 4]
    assert_told(probe, hooks, log)


def _no_such_handles(_: object) -> None:
    raise RuntimeError("its loops make their handles by another name")


@pytest.mark.parametrize(
    ("module", "name", "hook"),
    [
        ("mcp_probe.adapters.asyncio_loop", "_check_handles", "steps (asyncio)"),
        ("mcp.server.stdio", "_UnownedTextWrapper", "stdio transport"),
    ],
)
def test_private_name_that_is_missing_downgrades_and_is_said_once(
    module: str, name: str, hook: str, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    if name == "_check_handles":
        expected = bare("asyncio")
        monkeypatch.setattr(f"{module}.{name}", _no_such_handles)
    else:
        renamed = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(f"{module}._TextWrapper", renamed, raising=False)
        monkeypatch.setattr(f"{module}.{name}", None)
        expected = {**bare("asyncio")}
        expected.pop("stdio")
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    answers = run_scenario(server, "asyncio", stdio=name == "_check_handles")
    probe.detach()
    assert answers == expected
    state = dict(kept.header().hooks)[hook]
    assert state not in ("active", "") and "disabled" not in state
    assert [message for message in log.messages if hook in message] == [f"mcp_probe: {hook} is off: {state}"]
    assert len(kept.requests("add")) >= 4


class HangingSink:
    """A sink on a disk that has stopped answering."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.gave_up = False

    def write(self, lines: list[bytes]) -> None:
        self.entered.set()
        self.gave_up |= not self.leave.wait(250)

    def close(self) -> None:
        pass


def test_sink_that_hangs_holds_up_neither_answers_nor_the_end_of_a_transport_nor_detaching() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    sink = HangingSink()
    probe.add_sink(sink)
    collector = probe._collector._thread
    answers = run_scenario(server, "asyncio")
    assert sink.entered.wait(100)
    again = run_scenario(server, "asyncio")
    probe.snapshot()
    probe.detach()
    assert not sink.leave.is_set() and not sink.gave_up
    sink.leave.set()
    assert collector is not None
    collector.join(100)  # it must not go on beside the next test
    assert answers == again == bare("asyncio")


# --- the form used below `mcp-probe run` ---


def test_every_server_created_is_attached_and_answers_as_without() -> None:
    kept = Kept()
    probe = attach_everywhere(kept)
    servers = [make_server() for _ in range(2)]
    answers = [run_scenario(server, "asyncio", stdio=False) for server in servers]
    assert mcp_probe.attach(servers[0]) is probe, "attach() in a server that is launched under the probe adds no second"
    probe.detach()
    expected = {**bare("asyncio")}
    expected.pop("stdio")
    assert answers == [expected, expected]
    assert len(kept.requests("add")) == 2 * 8
    assert isinstance(kept.frames[0], Header) and isinstance(kept.frames[-1], End)


@pytest.mark.parametrize("part", ["session:Probe.attach", "adapters.mcp2:ServerHooks.install"])
def test_server_that_cannot_be_attached_is_created_and_answers_all_the_same(
    part: str, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    breaker = Breaker(monkeypatch, f"mcp_probe.{part}", 0)
    probe = attach_everywhere(Kept())
    try:
        servers = [make_server() for _ in range(2)]
        answers = run_scenario(servers[1], "asyncio", stdio=False)
    finally:
        hooks = dict(probe._hub.hooks)
        probe.detach()
    expected = {**bare("asyncio")}
    expected.pop("stdio")
    assert answers == expected
    assert breaker.hits == 2
    assert hooks["attach"].startswith("disabled after Fault in ")
    assert log.messages.count("mcp_probe: hook attach is disabled") == 1
