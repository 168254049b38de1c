"""Measures of requests, from readers to the summary and the recording, against truths that the tools construct."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.server.mcpserver import MCPServer

from mcp_probe.capture.hub import Hub
from mcp_probe.capture.measuring import Add, Measuring
from mcp_probe.measures import MEASURES, Measure
from mcp_probe.model import OperationSummary, RequestRecord, Summary
from mcp_probe.record.file import read_recording
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import attach
from tests.adapters.serving import over_memory_streams, summary_of
from tests.loops import LOOPS
from tests.rounds import until_right
from tests.running import Backend, kind_of

LOOKUP_S = 0.03
LOOKED: list[int] = []
"""What each look-up took, ns."""
on_every_loop = pytest.mark.parametrize("backend", LOOPS)


def switches_of_this_thread() -> int:
    """What Linux itself says in another place: ``/proc``."""
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])


class Shop:
    """Tools whose context switches and look-ups are known."""

    def __init__(self) -> None:
        self.switched: list[int] = []
        self.looked: dict[str, float] = {}  # tool -> ms that its look-ups took
        self.server = MCPServer("shop")
        for tool in (self.sleeps, self.sleeps_in_a_thread, self.looks_up, self.looks_up_in_a_pool, self.idle):
            self.server.tool()(tool)

    async def sleeps(self) -> str:
        return self.sleeps_in_a_thread()

    def sleeps_in_a_thread(self) -> str:
        before = switches_of_this_thread()
        for _ in range(20):
            time.sleep(0.001)
        self.switched.append(switches_of_this_thread() - before)
        return "x"

    async def looks_up(self) -> str:
        socket.getaddrinfo("localhost", 80)
        await anyio.to_thread.run_sync(socket.gethostbyname, "localhost")
        return "x"

    async def looks_up_in_a_pool(self) -> str:
        await anyio.getaddrinfo("localhost", 80)
        return "x"

    async def idle(self) -> str:
        return "x"

    async def be_called(self) -> None:
        async with over_memory_streams(self.server) as session:
            for tool in ("sleeps", "sleeps_in_a_thread", "looks_up", "looks_up_in_a_pool", "idle"):
                LOOKED.clear()
                await session.call_tool(tool, {})
                self.looked[tool] = sum(LOOKED) / 1e6

    def summary(self, backend: Backend, **options: Any) -> Summary:
        return summary_of(self.server, backend, self.be_called, **options)


@pytest.fixture(autouse=True)
def slow_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups take a known time, and leave this machine alone."""

    def slow(*_: Any, **__: Any) -> Any:
        began = time.monotonic_ns()
        time.sleep(LOOKUP_S)
        LOOKED.append(time.monotonic_ns() - began)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(socket, "gethostbyname", slow)


def row(summary: Summary, name: str) -> OperationSummary:
    return next(operation for operation in summary.operations if operation.name == name)


@on_every_loop
def test_a_look_up_of_a_name_is_its_requests_wait_on_whatever_thread_it_runs(backend: Backend) -> None:
    shop = Shop()
    summary = shop.summary(backend)
    for name, lookups in (("looks_up", 2), ("looks_up_in_a_pool", 1), ("idle", 0)):
        if kind_of(backend) == "uvloop" and name == "looks_up_in_a_pool":
            continue  # libuv looks names up itself; the tag says so, below
        most_ms = row(summary, name).measures["dns_wait_ms"].max
        assert most_ms is not None and shop.looked[name] >= lookups * LOOKUP_S * 1e3
        assert shop.looked[name] <= most_ms <= shop.looked[name] + lookups * 250
    assert "context_switches_voluntary" not in row(summary, "idle").measures
    told = row(summary, "idle").quality.get("dns_wait_ms")
    assert (told is not None and told.tag == "lower") == (kind_of(backend) == "uvloop")


@on_every_loop
def test_context_switches_are_those_that_the_system_counts_elsewhere(backend: Backend) -> None:

    def more() -> list[int]:
        """How many more were told than there were; handing a job over and answering block, too, now and then."""
        shop = Shop()
        summary = shop.summary(backend, measures="detailed")
        found = [0]
        for name, counted in zip(("sleeps", "sleeps_in_a_thread", "idle"), (*shop.switched, 0), strict=True):
            told = row(summary, name).measures["context_switches_voluntary"].max
            assert told is not None and told >= counted and (counted >= 20 or name == "idle")
            found.append(int(told - counted))
        return found

    # A thread that waits for the GIL while another collects wakes up each 5 ms.
    assert max(until_right(more, lambda found: max(found) <= 15)) <= 15


def test_off_reads_nothing_and_leaves_nothing() -> None:
    before = socket.getaddrinfo
    shop = Shop()
    probe = attach(shop.server, telemetry="off")
    assert socket.getaddrinfo is not before
    probe.detach()
    assert socket.getaddrinfo is before
    assert all(not operation.measures for operation in shop.summary("asyncio", measures="off").operations)


def test_a_recording_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    Shop().summary("asyncio", record=str(path), measures="detailed")
    records = {frame.name: frame for frame in read_recording(path) if isinstance(frame, RequestRecord)}
    kept = {name: (value, tag) for name, value, tag in records["looks_up"].measures}
    assert kept.keys() == {measure.name for measure in MEASURES}
    value, tag = kept["dns_wait"]
    assert value is not None and value >= 2 * LOOKUP_S * 1e9 and tag == "exact"


# --- readers that a test declares ---


class Counts:
    """A reader of steps: a counter of the thread that this test moves."""

    at = 0

    def read(self) -> tuple[int, ...]:
        return (self.at,)


class Refuses:
    """One that cannot be had here."""

    def __init__(self) -> None:
        raise OSError("not on this system")


class Breaks:
    """One that works once."""

    def __init__(self) -> None:
        self._left = 1

    def read(self) -> tuple[int, ...]:
        self._left -= 1
        if self._left < 0:
            raise ValueError("a fault of ours")
        return (1,)


class Marks:
    """A reader of marks that hands its ``add`` out."""

    add: Add

    def __init__(self, hub: Hub, add: Add) -> None:
        type(self).add = staticmethod(add)

    def is_complete(self) -> bool:
        return True

    def restore(self) -> list[str]:
        return ["left as it is"]


def declare(reader: type, **given: Any) -> Measure:
    values: dict[str, Any] = {"name": "made_up", "unit": "count", "quality": "exact", "label": "m", "meaning": "x"}
    return Measure(**{**values, "read": "steps", **given}, reader=f"{__name__}:{reader.__name__}")


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()


def started(hub: Hub, *measures: Measure) -> Measuring:
    measuring = Measuring(hub, measures)
    measuring.want("a test", "detailed")
    return measuring


def begun(number: int = 1) -> RawRequest:
    raw = RawRequest(number, "request", "tools/call", "t", "memory")
    raw.first_step_ns = time.monotonic_ns()
    return raw


def test_only_what_is_read_between_begin_and_end_of_a_step_counts_and_for_all_that_enclose_it(hub: Hub) -> None:
    measuring = started(hub, declare(Counts))
    outer, inner = begun(1), begun(2)
    inner.parent = outer
    meter = measuring.meter
    assert meter is not None
    Counts.at = 5
    reading = meter.begin()
    Counts.at = 12
    meter.end(reading, inner)
    Counts.at = 100
    job = meter.enter(outer)
    Counts.at = 101
    meter.leave(job)
    assert measuring.of(inner) == (("made_up", 7, "exact"),)
    assert measuring.of(outer) == (("made_up", 8, "exact"),)


def test_a_fold_may_be_the_largest(hub: Hub) -> None:
    measuring = started(hub, declare(Counts, fold="max"))
    raw = begun()
    for value in (3, 9, 4):
        measuring.charge(raw, "made_up", value)
    assert measuring.of(raw) == (("made_up", 9, "exact"),)


def test_a_destructor_may_charge_while_its_own_thread_does(hub: Hub) -> None:
    """As where a collection finds a task whose error nobody has seen, and asyncio logs it."""
    measuring = started(hub, declare(Counts))

    class Collecting(RawRequest):
        @property
        def ended(self) -> bool:
            if not said:
                said.append(True)
                measuring.charge(other, "made_up", 5)
            return False

        @ended.setter
        def ended(self, value: bool) -> None: ...

    said: list[bool] = []
    raw, other = Collecting(1, "request", "tools/call", "t", "memory"), begun(2)
    thread = threading.Thread(target=measuring.charge, args=(raw, "made_up", 3), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert measuring.of(other) == (("made_up", 5, "exact"),)


def test_a_request_that_ended_is_charged_nothing_more(hub: Hub) -> None:
    measuring = started(hub, declare(Counts))
    raw = begun()
    measuring.charge(raw, "made_up", 3)
    raw.end_at(1)
    measuring.charge(raw, "made_up", 3)
    assert measuring.of(raw) == (("made_up", 3, "exact"),)


def test_what_began_before_the_reader_did_is_unknown(hub: Hub) -> None:
    raw = begun()
    measuring = started(hub, declare(Counts))
    assert measuring.of(raw) == (("made_up", None, "unavailable"),)


def test_where_steps_were_not_seen_a_measure_of_steps_is_unknown_and_one_of_marks_is_not(hub: Hub) -> None:
    measuring = started(hub, declare(Counts), declare(Marks, name="marked", read="marks"))
    raw = begun()
    raw.seen = 0
    assert measuring.of(raw) == (("made_up", None, "unavailable"), ("marked", 0, "exact"))


def test_a_reader_that_cannot_be_had_is_named_and_nothing_else_is_missing(hub: Hub) -> None:
    measuring = started(hub, declare(Refuses), declare(Counts, name="other"))
    assert "not on this system" in hub.hooks["measure made_up"]
    assert [name for name, _, _ in measuring.of(begun())] == ["other"]


def test_a_reader_that_breaks_is_asked_no_more_and_the_server_hears_nothing(hub: Hub) -> None:
    measuring = started(hub, declare(Breaks))
    meter = measuring.meter
    assert meter is not None
    reading = meter.begin()
    meter.end(reading, begun())
    assert (measuring.meter, measuring.of(begun())) == (None, ())
    assert hub.hooks["measures of steps"].startswith("disabled after ValueError")
    measuring.want("another", "detailed")
    assert measuring.meter is None


def test_what_a_hook_could_not_put_back_is_said(hub: Hub) -> None:
    measuring = started(hub, declare(Marks, read="marks"))
    Marks.add("made_up", 4)  # nobody's
    assert measuring.close() == ["left as it is"]
    assert measuring.of(begun()) == ()


def test_every_declared_measure_has_a_sentence_a_unit_and_a_name_of_its_own() -> None:
    assert len({measure.name for measure in MEASURES} | {measure.label for measure in MEASURES}) == 2 * len(MEASURES)
    assert all(measure.meaning and measure.quality != "unavailable" for measure in MEASURES)
