"""A full recording against the handlers' own readings of the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.model import BUDGET_PARTS, Frame, Header, RequestRecord, StepRecord, Timeline
from mcp_probe.record.file import read_recording
from mcp_probe.record.timeline import Phase, phases_of
from mcp_probe.report import trace
from mcp_probe.report.tracks import tracks_of
from mcp_probe.workloads.raw_http import RawSession
from tests.adapters.raw_clients import HttpClient
from tests.launch.attaching import PROGRAM
from tests.launch.running import LIMIT_S, ROOT, environment, probe_run
from tests.ports import free_port
from tests.report.trace_checker import faults

SERVER = Path(__file__).with_name("known_server.py")
MCP1 = ROOT / ".envs" / "mcp1" / "bin" / "python"
MS = 1_000_000
CLOCK_NS = 2 * MS
"""By so much at most a sleep ends early: an event loop runs timers that are due within its clock's resolution."""

Known = dict[tuple[str, str], tuple[int, int]]


class Recorded:
    """One run of the known server: what the handlers wrote down, and what the recording says."""

    def __init__(self, known: Known, frames: list[Frame]) -> None:
        self.known = known
        self.frames = frames
        records = [frame for frame in frames if isinstance(frame, RequestRecord)]
        self.records = {record.name or record.method: record for record in records}
        self.timelines = {frame.request: frame for frame in frames if isinstance(frame, Timeline)}

    def phases(self, tool: str) -> list[Phase]:
        record = self.records[tool]
        return phases_of(record, self.timelines[record.id])

    def shared(self, tool: str, part: str, what: str) -> int:
        """How much of the stretch that ``tool`` wrote down as ``what`` is in ``part``."""
        return self.shared_with(tool, part, *self.known[tool, what])

    def shared_with(self, tool: str, part: str, since: int, until: int) -> int:
        """How much of [since, until) is in ``part`` of ``tool``."""
        some = [phase for phase in self.phases(tool) if phase.part == part]
        return sum(max(0, min(phase.to_ns, until) - max(phase.from_ns, since)) for phase in some)


def ask(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


def record(folder: Path, python: str, native: str) -> Recorded:
    """Calls go out in groups, each when the one before has been answered."""
    times, file = folder / "times", folder / "calls.jsonl"
    options = ("--record", str(file), "--full", "--output", str(folder / "report"))
    given = environment(KNOWN_TIMES=str(times), MCP_PROBE_NATIVE=native)
    with subprocess.Popen(
        probe_run([python, str(SERVER)], *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=given,
        cwd=ROOT,
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        client = {"name": "test", "version": "1"}
        begin = ask(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n"
        number = 0
        for group in ((begin,), ("mixed",), ("hold", "wait"), ("victim", "block")):
            for tool in group:
                number += 1
                run.stdin.write(tool if tool is begin else ask(number, "tools/call", name=tool, arguments={}))
            run.stdin.flush()
            for _ in group:
                assert "error" not in json.loads(run.stdout.readline())
            if group[0] is begin:
                run.stdin.write(ready)
        run.stdin.close()
        run.wait(LIMIT_S)
    rows = [json.loads(line) for line in times.read_text().splitlines()]
    return Recorded({(tool, what): (since, until) for tool, what, since, until in rows}, list(read_recording(file)))


HERE = (
    pytest.param((sys.executable, "1"), id="mcp2"),
    pytest.param((sys.executable, "0"), id="mcp2-pure"),
    pytest.param((str(MCP1), "1"), id="mcp1", marks=pytest.mark.skipif(not MCP1.exists(), reason="no .envs/mcp1")),
)


@pytest.fixture(scope="module", params=HERE)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("full"), *request.param)


def test_the_header_says_that_it_is_full_and_each_record_has_its_timeline(recorded: Recorded) -> None:
    assert [frame.full for frame in recorded.frames if isinstance(frame, Header)][-1]
    assert {record.id for record in recorded.records.values()} == set(recorded.timelines)


def test_the_phases_of_each_request_add_up_to_its_duration_and_to_its_budget(recorded: Recorded) -> None:
    for tool, record in recorded.records.items():
        phases = recorded.phases(tool)
        assert sum(phase.to_ns - phase.from_ns for phase in phases) == record.end_ns - phases[0].from_ns
        for part in BUDGET_PARTS:
            known = getattr(record.budget, part)
            if known is not None and part != "unaccounted":
                assert sum(one.to_ns - one.from_ns for one in phases if one.part == part) == known, (tool, part)


@pytest.mark.parametrize(
    ("tool", "part", "what", "least_ms"),
    [
        ("mixed", "awaiting", "awaiting", 500),
        ("mixed", "busy", "busy", 30),
        ("mixed", "executor_run", "executor_run", 400),
        ("hold", "awaiting", "holds", 600),
        ("block", "busy", "busy", 30),
    ],
)
def test_what_a_handler_read_off_its_clock_is_where_its_phases_are(
    recorded: Recorded, tool: str, part: str, what: str, least_ms: int
) -> None:
    # The collector may run in the stretch; so does the end of the step that submits a job or begins to wait, which is
    # short where the host has a CPU for it.
    found = sum(recorded.shared(tool, each, what) for each in {part, "gc", "busy"})
    assert found >= least_ms * MS - CLOCK_NS
    assert recorded.shared(tool, "unaccounted", what) == 0
    assert recorded.shared(tool, part, what) > found / 2


def test_a_wait_for_a_lock_names_its_holder_until_it_let_go(recorded: Recorded) -> None:
    timeline = recorded.timelines[recorded.records["wait"].id]
    lock = next(one for one in timeline.awaits if one.kind == "lock")
    held = next(part for part in lock.holders if part.request == recorded.records["hold"].id)
    _, lets_go = recorded.known["hold", "holds"]
    begins, has_it = recorded.known["wait", "awaiting"]
    assert begins <= lock.from_ns <= held.from_ns
    assert lets_go <= held.to_ns <= lock.to_ns <= has_it
    assert held.to_ns - held.from_ns >= 600 * MS - CLOCK_NS


def test_the_blocked_request_was_ready_while_the_blocker_blocked(recorded: Recorded) -> None:
    since, until = recorded.known["block", "busy"]
    late = recorded.shared_with("victim", "ready_wait", since, until)
    assert late >= 25 * MS - CLOCK_NS
    assert late + recorded.shared_with("victim", "awaiting", since, until) == until - since


def test_the_slow_step_has_its_cpu_time_and_its_line(recorded: Recorded) -> None:
    block = recorded.records["block"].id
    slow = max(
        (frame for frame in recorded.frames if isinstance(frame, StepRecord) and frame.request == block),
        key=lambda step: step.end_ns - step.start_ns,
    )
    timeline = recorded.timelines[block]
    assert (slow.start_ns, slow.end_ns) in {(step.start_ns, step.end_ns) for step in timeline.steps}
    assert slow.cpu_ns is not None
    assert slow.cpu_ns < 30 * MS
    assert slow.file is None or Path(slow.file).name == SERVER.name  # a starved watchdog saw no line


def test_the_trace_is_sound_and_has_arrows_from_holder_and_blocker(recorded: Recorded) -> None:
    tracks = tracks_of(recorded.frames)
    assert faults(trace.events(tracks)) == []
    victims = {flow.target.number for flow in tracks.flows}
    assert {recorded.records["wait"].id, recorded.records["victim"].id} <= victims


@pytest.mark.parametrize("python", [sys.executable, pytest.param(str(MCP1), marks=HERE[2].marks)], ids=["mcp2", "mcp1"])
def test_over_http_each_request_says_whose_streams_it_came_through_and_whether_its_connection_was_new(
    python: str, tmp_path: Path
) -> None:
    """Two sessions, each on one connection that is kept."""
    port, file = free_port(), tmp_path / "recording"
    options = ("--record", str(file), "--full", "--output", str(tmp_path / "report"))
    command = probe_run([python, str(PROGRAM), str(port), "asyncio"], *options)
    url = f"http://127.0.0.1:{port}/mcp"
    with HttpClient(command, tmp_path, environment(), port, "/mcp", profiled=True):
        sessions = [RawSession(url), RawSession(url)]
        for session in sessions:
            session.open()
        for number in range(3):
            for which, session in enumerate(sessions):
                assert session.call("add", a=which, b=10 * number).text() == str(which + 10 * number)
        for session in sessions:
            session.close()
    frames = list(read_recording(file))
    timelines = {frame.request: frame for frame in frames if isinstance(frame, Timeline)}
    calls = [timelines[frame.id] for frame in frames if isinstance(frame, RequestRecord) and frame.name == "add"]
    assert len(calls) == 6
    first, second = ({one.streams for one in calls[which::2]} for which in (0, 1))
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)
    assert not any(one.new_connection for one in calls), "the handshake was the first on each"
    opened = [frame.id for frame in frames if isinstance(frame, RequestRecord) and frame.method == "initialize"]
    assert all(timelines[id].new_connection for id in opened)
