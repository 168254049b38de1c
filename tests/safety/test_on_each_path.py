"""Faults in a server, on each SDK and transport: clients see what they see bare, and the probe tells the truth.

tests/safety/test_broken_parts.py breaks the probe on the same paths; here something else breaks.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import End, Frame, Header, RequestRecord, Summary
from mcp_probe.record.file import read_recording
from tests.safety.callers import Caller, Ended, calling

EnvPython = Callable[[str], Path]
Talk = Callable[[Caller], Awaitable[list[Any]]]
SERVER = str(Path(__file__).with_name("faults_server.py"))
QUICK = {("mcp 2.x", "stdio")}
CELLS = [
    pytest.param(sdk, transport, marks=() if (sdk, transport) in QUICK else pytest.mark.endurance)
    for sdk in ("mcp 2.x", "mcp 1.x")
    for transport in ("stdio", "http")
]
on_each_path = pytest.mark.parametrize(("sdk", "transport"), CELLS)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Told:
    """What a client saw of a server, and what the probe recorded of it."""

    answers: list[Any]
    ended: Ended
    frames: list[Frame]

    @property
    def requests(self) -> list[RequestRecord]:
        """Records of requests, oldest first."""
        return [frame for frame in self.frames if isinstance(frame, RequestRecord) and frame.kind == "request"]

    def outcomes(self, tool: str) -> dict[str, int]:
        """How the calls of a tool ended."""
        return dict(Counter(record.outcome for record in self.requests if record.name == tool))

    def summary(self) -> Summary:
        """What a report would say."""
        fold = Fold()
        fold.add_all(self.frames)
        return fold.summary()


async def told(
    python: Path | str,
    transport: str,
    talk: Talk,
    *arguments: str,
    recording: Path | None = None,
    program: str = SERVER,
) -> Told:
    """A whole conversation; with ``recording`` the server attaches a probe."""
    environment = {} if recording is None else {"MCP_PROBE_RECORD": str(recording), "MCP_PROBE_TELEMETRY": "off"}
    extra = () if recording is None else ("attach",)
    async with calling(python, SERVER, transport, *arguments, *extra, **environment) as caller:
        answers = await talk(caller)
        ended = await caller.close()
    return Told(answers, ended, [] if recording is None else list(read_recording(recording)))


@pytest.fixture
def compare(env_python: EnvPython, tmp_path: Path) -> Callable[..., Told]:
    """The same conversation bare and probed; fails where a client sees a difference. Returns what was recorded."""

    def both(sdk: str, transport: str, talk: Talk, *arguments: str) -> Told:
        python = sys.executable if sdk == "mcp 2.x" else env_python("mcp1")
        bare = asyncio.run(told(python, transport, talk, *arguments))
        probed = asyncio.run(told(python, transport, talk, *arguments, recording=tmp_path / "recording"))
        assert probed.answers == bare.answers
        assert probed.ended == bare.ended
        assert list(tmp_path.glob("recording*")) == [tmp_path / "recording"]
        assert {frame.server for frame in probed.frames if isinstance(frame, Header)} == {"faults"}
        return probed

    return both


def assert_whole(probed: Told, sent: dict[str, int]) -> None:
    """Each call that was sent is counted once, nothing is negative, nothing has failed in the probe."""
    assert isinstance(probed.frames[-1], End)
    counts = Counter(record.name for record in probed.requests if record.method == "tools/call")
    assert counts == sent
    summary = probed.summary()
    assert summary.probe.disabled_hooks == ()
    assert summary.window.seconds >= 0
    rows = {row.name: row.count for row in summary.operations if row.method == "tools/call"}
    assert rows == sent
    for record in probed.requests:
        parts = [getattr(record.budget, name) for name in record.budget.__slots__]
        assert all(part is None or part >= 0 for part in parts)
        assert record.end_ns >= record.arrival_ns


def in_turn(*calls: tuple[str, dict[str, Any]]) -> Talk:
    """Calls one after the other; each answer."""

    async def talk(caller: Caller) -> list[Any]:
        return [await caller.call(id, tool, **arguments) for id, (tool, arguments) in enumerate(calls, 1)]

    return talk


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


ADD = ("add", {"a": 1, "b": 2})


@on_each_path
def test_children_of_a_tool_report_nothing_and_spoil_nothing(
    sdk: str, transport: str, compare: Callable[..., Told]
) -> None:
    """A spawned child imports the main module, which attaches: once it emptied the recording of its parent."""
    methods = ["os.fork", "fork", "spawn", "forkserver"]
    if (sdk, transport) == ("mcp 1.x", "stdio"):
        methods.remove("fork")  # hangs bare: the child closes sys.stdin, which a thread of the SDK was reading
    children = [("child", {"method": method, "number": 3 + at}) for at, method in enumerate(methods)]
    probed = compare(sdk, transport, in_turn(ADD, *children, ADD))
    assert [text_of(answer) for answer in probed.answers[1:-1]] == [
        f"{(3 + at) ** 2}, exit code 0" for at in range(len(methods))
    ]
    assert_whole(probed, {"add": 2, "child": len(methods)})
    assert sum(isinstance(frame, End) and frame.reason == "exit" for frame in probed.frames) <= 1


@on_each_path
def test_a_wall_clock_that_steps_back_changes_no_duration(
    sdk: str, transport: str, compare: Callable[..., Told]
) -> None:
    steps = [("step_clock", {"seconds": seconds}) for seconds in (-86_400.0, 7_200.0, -(10.0**9))]
    probed = compare(sdk, transport, in_turn(ADD, *[one for step in steps for one in (step, ADD)]))
    assert_whole(probed, {"add": 4, "step_clock": 3})
    for record in probed.requests:
        if record.name == "step_clock":
            assert 0.02e9 <= record.end_ns - record.arrival_ns < 100e9
    assert 0 < probed.summary().window.seconds < 100


@on_each_path
def test_a_full_disk_ends_the_recording_and_nothing_else(
    sdk: str, transport: str, compare: Callable[..., Told], tmp_path: Path
) -> None:
    """What was recorded until then can be read, and is not told as whole."""
    recording = tmp_path / "recording"

    async def talk(caller: Caller) -> list[Any]:
        answers = [await caller.call(1, "add", a=1, b=2)]
        while recording.exists() and b'"add"' not in recording.read_bytes():
            await asyncio.sleep(0.05)
        answers.append(await caller.call(2, "fill_the_disk"))
        return answers + [await caller.call(id, "add", a=id, b=2) for id in range(3, 23)]

    probed = compare(sdk, transport, talk)
    assert not any(isinstance(frame, End) for frame in probed.frames)
    assert 1 <= sum(record.name == "add" for record in probed.requests) <= 21


@on_each_path
def test_a_client_that_dies_during_a_call_leaves_a_call_that_did_not_end_well(
    sdk: str, transport: str, compare: Callable[..., Told]
) -> None:
    async def talk(caller: Caller) -> list[Any]:
        answers = [await caller.call(1, "add", a=1, b=2)]
        for id in (2, 3, 4):
            await caller.begin(id, "hang")
        await caller.hang_up()
        if transport == "http":  # the session lives, and others may call
            answers.append(await caller.call(5, "add", a=3, b=4))
        return answers

    probed = compare(sdk, transport, talk)
    assert_whole(probed, {"add": 1 + (transport == "http"), "hang": 3})
    assert "ok" not in probed.outcomes("hang")


@on_each_path
@pytest.mark.parametrize("setup", ["debug", "own-tasks", "eager-tasks", "tasks-in-python"])
def test_loops_that_users_change_answer_the_same_and_are_counted(
    sdk: str, transport: str, setup: str, compare: Callable[..., Told]
) -> None:
    if setup == "eager-tasks" and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with CPython 3.12")

    async def talk(caller: Caller) -> list[Any]:
        answers = await asyncio.gather(*(caller.call(id, "add", a=id, b=1) for id in range(1, 21)))
        answers += await asyncio.gather(*(caller.call(id, "hold", number=id, of=10) for id in range(31, 41)))
        return [*answers, await caller.call(50, "logged")]

    probed = compare(sdk, transport, talk, setup)
    assert_whole(probed, {"add": 20, "hold": 10, "logged": 1})
    assert probed.summary().outstanding.peak >= 10


@pytest.mark.soak
@on_each_path
def test_ten_thousand_requests_in_flight_are_counted_as_answered(
    sdk: str, transport: str, compare: Callable[..., Told]
) -> None:
    """Each has an id of its own, and none is answered before all are there."""
    many = 10_000

    async def talk(caller: Caller) -> list[Any]:
        return await asyncio.gather(*(caller.call(id, "hold", number=id, of=many) for id in range(1, many + 1)))

    probed = compare(sdk, transport, talk)
    assert [answer["id"] for answer in probed.answers] == list(range(1, many + 1))
    assert [text_of(answer) for answer in probed.answers] == [str(id) for id in range(1, many + 1)]
    summary = probed.summary()
    [row] = [row for row in summary.operations if row.name == "hold"]
    assert (row.count, row.errors) == (many, 0)
    assert (summary.requests.dropped, summary.requests.unfinished) == (0, 0)
    assert summary.outstanding.peak == many
    assert summary.probe.disabled_hooks == ()


@pytest.mark.soak
@on_each_path
def test_attaching_and_detaching_beside_calls_changes_no_answer(
    sdk: str, transport: str, compare: Callable[..., Told]
) -> None:
    """A thousand times, with eight calls in flight; the probe that is attached last sees what comes after."""
    calls: list[int] = []

    async def talk(caller: Caller) -> list[Any]:
        churn = asyncio.create_task(caller.call(1, "churn", times=1_000))
        numbers = itertools.count(2)

        async def keep_calling() -> int:
            made = 0
            while not churn.done():
                number = next(numbers)
                assert text_of(await caller.call(number, "add", a=number, b=1)) == str(number + 1)
                made += 1
            return made

        calls.append(sum(await asyncio.gather(*(keep_calling() for _ in range(8)))))
        after = await asyncio.gather(*(caller.call(10**6 + n, "hold", number=n, of=20) for n in range(20)))
        return [await churn, *after]

    probed = compare(sdk, transport, talk)
    assert isinstance(probed.frames[-1], End)
    assert probed.summary().probe.disabled_hooks == ()
    assert probed.outcomes("hold") == {"ok": 20}
    print(f"{sdk}, {transport}: {calls[1]} calls while a probe came and went")
    assert calls[1] >= 100


def available_bytes() -> int | None:
    """Memory that the system can give without swapping; ``None`` where it does not say."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) << 10


@pytest.mark.soak
@on_each_path
def test_a_result_of_a_gigabyte_is_not_copied_by_us(sdk: str, transport: str, compare: Callable[..., Told]) -> None:
    """By the server's peak: SDK and pydantic hold several copies of the result, with the probe as without."""
    megabytes = 1_024
    free = available_bytes()
    if free is not None and free < 12 << 30:
        pytest.skip("server and client take up to 10 GB")
    peaks: list[int] = []

    async def talk(caller: Caller) -> list[Any]:
        text = text_of(await caller.call(1, "large", megabytes=megabytes))
        size = text.count("x")
        assert len(text) == size
        del text
        peaks.append(int(text_of(await caller.call(2, "peak_memory"))))
        return [size]

    probed = compare(sdk, transport, talk)
    assert probed.answers == [megabytes << 20]
    assert_whole(probed, {"large": 1, "peak_memory": 1})
    [record] = [record for record in probed.requests if record.name == "large"]
    assert record.response_bytes is None or record.response_bytes > megabytes << 20
    bare, with_probe = peaks
    print(f"{sdk}, {transport}: peak {bare / 1e6:.2f} GB bare, {with_probe / 1e6:.2f} GB with the probe")
    assert with_probe - bare < 100_000, "a copy would be ten times that"
