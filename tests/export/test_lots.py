"""What telemetry takes without records is what the records would have said; what needs a record gets one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, AlwaysOnExemplarFilter, TraceBasedExemplarFilter
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_probe import native
from mcp_probe.capture.memory import Memory
from mcp_probe.export.exponential import source_of
from mcp_probe.export.histograms import Book
from mcp_probe.export.lots import AMOUNT_PARTS, NO_LIMIT_NS, Lot, lots_of
from mcp_probe.export.metrics import MetricExport
from mcp_probe.export.spans import SpanExport
from mcp_probe.model import RequestRecord
from mcp_probe.record.assemble import assemble
from mcp_probe.record.listeners import Listeners
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, Measured, RawRequest
from tests.export.collected import Backend
from tests.frames import MS, SECOND, make_header, make_step
from tests.kept import Listening
from tests.native.twins import needs_the_accelerator, plain

pytestmark = needs_the_accelerator
core: Any = native.core
HERE: Measured = ("native-hybrid", "all Python allocations", 2048, 0)


@pytest.fixture(autouse=True)
def _hooks_end() -> Iterator[None]:
    yield
    if core is not None:
        core.charge(None)
        core.memory_uninstall()


def ended(number: int = 1, busy: int = 5, **said: Any) -> RawRequest:
    """A plain request whose span somebody has seen to."""
    raw: RawRequest = plain([(0, 0, busy, WAKE_LOOP), (100, 10, 40, WAKE_SOCKET)], 10, 20, 7, 30)
    raw.id, raw.protocol_version, raw.server_span = number, "2025-06-18", "app"
    raw.trace_id, raw.span_id, raw.trace_flags = 1000 + number, 2000 + number, 1
    for name, value in said.items():
        setattr(raw, name, value)
    return raw


def charged(raw: RawRequest, size: int) -> RawRequest:
    raw.ended = False
    core.charge(raw)
    try:
        bytearray(size)
    finally:
        core.charge(None)
    raw.ended = True
    return raw


def record_of(raw: RawRequest, memory: Memory | None = None) -> RequestRecord:
    return assemble(raw, raw.end_ns or 0, memory=None if memory is None else memory.use_of(raw))


class Both:
    """The exports of one stream: metrics under the application's provider, under ours, and spans."""

    def __init__(self, **options: Any) -> None:
        self.backends = [Backend(**options) for _ in range(2)]
        self.book = Book()
        self.observed = MetricExport(self.backends[0].provider)
        self.ours = MetricExport(self.backends[1].provider, books=[self.book])
        self.made = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.made))
        self.spans = SpanExport(provider)
        self.exports = (self.observed, self.ours, self.spans)

    def take(self, *frames: Any) -> None:
        for export in self.exports:
            export.take(frames)

    def take_lots(self, lots: list[Lot]) -> None:
        for export in self.exports:
            export.take_lots(lots)

    def close(self) -> dict[str, Any]:
        """All that can be seen of what was taken."""
        for export in self.exports:
            export.close(0.1)
        found: dict[str, Any] = {"slow": vars(self.spans._slow), "spans": len(self.made.get_finished_spans())}
        for place, backend in enumerate(self.backends):
            for name, metric in backend.collect().items():
                found[f"{place} {name}"] = sorted(map(shown, metric.data.data_points), key=str)
        scope = source_of(self.book)(AggregationTemporality.CUMULATIVE)
        for metric in scope.metrics if scope is not None else ():
            found[f"sent {metric.name}"] = sorted(map(shown, metric.data.data_points), key=str)
        return found


def shown(point: Any) -> Any:
    fields = {slot: getattr(point, slot) for slot in vars(point) if "time" not in slot and slot != "exemplars"}
    exemplars = [(one.value, one.trace_id, one.span_id) for one in getattr(point, "exemplars", ())]
    return {**fields, "exemplars": sorted(exemplars)}


def same(batch: list[RawRequest], measured: Measured = HERE, memory: Memory | None = None, **options: Any) -> int:
    """Check that both ways say the same; how many requests needed no record."""
    by_record, by_lot = Both(**options), Both(**options)
    rest, lots = lots_of(batch, SECOND, measured)
    sorted_out = [raw for lot in lots for raw in lot.raws]
    assert sorted(map(id, [*sorted_out, *rest])) == sorted(map(id, batch))
    by_record.take(*(record_of(raw, memory) for raw in [*sorted_out, *rest]))
    by_lot.take_lots(lots)
    by_lot.take(*(record_of(raw, memory) for raw in rest))
    assert by_lot.close() == by_record.close()
    return len(sorted_out)


texts = st.sampled_from(["a", "b", "c"])
requests = st.builds(
    ended,
    st.integers(1, 40),
    st.integers(0, 2 * SECOND),
    name=st.none() | texts,
    method=st.sampled_from(["tools/call", "tools/call", "prompts/get", "ping", "made/up"]),
    transport=st.sampled_from(["stdio", "http"]),
    session_id=st.none() | texts,
    protocol_version=st.sampled_from([None, "2025-06-18", "nonsense"]),
    outcome=st.sampled_from(["ok", "ok", "ok", "tool_error"]),
    server_span=st.sampled_from(["app", "probe", None]),
    trace_flags=st.sampled_from([1, 1, 0, None]),
    transport_seen=st.booleans(),
    write_seen=st.booleans(),
)


@given(st.lists(requests, max_size=12))
@settings(deadline=None)
def test_what_is_taken_without_records_is_what_they_say(batch: list[RawRequest]) -> None:
    for number, raw in enumerate(batch):
        raw.trace_id = raw.trace_id and 1000 + number
    event(f"{same(batch) > 0} without a record")


@pytest.mark.parametrize("exemplars", [AlwaysOnExemplarFilter, AlwaysOffExemplarFilter, TraceBasedExemplarFilter])
def test_the_last_sampled_request_of_each_bucket_is_its_exemplar(exemplars: Any) -> None:
    batch = [ended(n, busy=(n % 5) * 30 * MS, trace_flags=n % 3 > 0, name="add") for n in range(40)]
    assert same(batch, exemplar_filter=exemplars()) == len(batch)


def test_memory_is_told_as_a_record_would() -> None:
    core.memory_install("hybrid")
    memory = Memory(lambda _: None, lambda exc: pytest.fail(str(exc)))
    memory.method, memory.scope = "native-hybrid", "all Python allocations"
    batch = [charged(ended(number, name="add"), 600 * number) for number in range(1, 9)]
    batch.append(ended(9, name="add"))  # never measured
    assert same(batch, memory.summing, memory) == len(batch)
    _, lots = lots_of(batch, SECOND, memory.summing)
    assert [(len(lot.raws), lot.memory_scope) for lot in lots] == [(8, "all Python allocations"), (1, None)]
    assert [amounts[7] >= 600 * number for number, amounts in enumerate(lots[0].amounts, 1)] == [True] * 8  # type: ignore[operator]


@pytest.mark.parametrize(
    "said",
    [
        {"outcome": "tool_error"},
        {"outcome": "cancelled"},
        {"kind": "function"},
        {"server_span": None},
        {"end_ns": 10 * SECOND},
        {"end_ns": None},
        {"partial": True},
        {"sent_ns": 1},
        {"sized": (1, 2)},
        {"arrival_ns": None},
    ],
)
def test_what_says_more_or_has_a_span_to_come_is_wanted_as_a_record(said: dict[str, Any]) -> None:
    usual, special = ended(1), ended(2, **said)
    rest, [lot] = lots_of([usual, special], SECOND, HERE)
    assert (rest, lot.raws) == ([special], [usual])


def test_without_a_known_way_to_measure_memory_every_record_is_wanted() -> None:
    batch = [ended(1), ended(2)]
    assert lots_of(batch, SECOND, (None, *HERE[1:])) == (batch, [])
    assert lots_of(batch, SECOND, (*HERE[:3], 10 * SECOND)) == (batch, [])
    assert lots_of([], SECOND, HERE) == ([], [])


def test_where_memory_is_not_measured_it_is_not_told() -> None:
    memory = Memory(lambda _: None, lambda exc: pytest.fail(str(exc)))
    core.memory_install("hybrid")
    batch = [charged(ended(number), 1000) for number in range(3)]
    assert same(batch, memory.summing, memory) == len(batch)
    [lot] = lots_of(batch, SECOND, memory.summing)[1]
    assert (lot.memory_scope, {len(amounts) for amounts in lot.amounts}) == (None, {len(AMOUNT_PARTS)})
    memory._since_ns = 10 * SECOND  # those before were measured, perhaps
    assert lots_of(batch, SECOND, memory.summing) == (batch, [])


@pytest.mark.parametrize("wrong", [None, object(), ("a request",)])
def test_nothing_but_requests_is_sorted(wrong: Any) -> None:
    with pytest.raises(TypeError):
        lots_of([ended(1), wrong], SECOND, HERE)
    with pytest.raises(ValueError, match="'no part' is no part of a budget"):
        core.lots([], ("busy", "no part"), SECOND, None, 0, 0)


def test_steps_that_came_before_are_the_tools() -> None:
    by_record, by_lot = Both(), Both()
    raw = ended(1, name="add", busy=3 * MS)
    _, lots = lots_of([raw], SECOND, HERE)
    for both in (by_record, by_lot):
        both.take(make_step(0, 3 * MS, request=1))
    by_record.take(record_of(raw))
    by_lot.take_lots(lots)
    assert by_lot.close() == by_record.close()


def test_a_sample_of_all_requests_wants_all_records() -> None:
    assert SpanExport(TracerProvider(), detail=0.1).record_from_ns == 0
    assert SpanExport(TracerProvider(), slow_request_ms=5).record_from_ns == 5 * MS
    assert SpanExport(TracerProvider()).record_from_ns == SECOND
    assert MetricExport(Backend().provider).record_from_ns == NO_LIMIT_NS


# --- who hears of them ---


class Sparing(Listening):
    """Does without most records."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sorted: list[RawRequest] = []

    def take_plain(self, batch: list[RawRequest], measured: Measured) -> list[RawRequest]:
        if self._deaf:
            raise ValueError("deaf")
        self.sorted += batch
        return batch[:1]


def test_the_only_listener_may_do_without_records_once_it_has_heard_the_header() -> None:
    faults: list[Exception] = []
    listeners, listener, batch = Listeners(faults.append), Sparing(), [ended(1), ended(2)]
    assert listeners.take_plain(batch, HERE) == batch
    listeners.add(listener)
    assert listeners.take_plain(batch, HERE) == batch
    listeners.take([make_header()])
    assert listeners.take_plain(batch, HERE) == batch[:1]
    assert listener.sorted == batch
    listeners.add(Listening())
    assert listeners.take_plain(batch, HERE) == batch
    listeners.take([make_header()])
    assert listeners.take_plain(batch, HERE) == batch
    assert (listener.sorted, faults) == (batch, [])


def test_a_listener_that_fails_at_it_hears_no_more() -> None:
    faults: list[Exception] = []
    listeners, listener, batch = Listeners(faults.append), Sparing(), [ended(1)]
    listeners.add(listener)
    listeners.take([make_header()])
    listener._deaf = True
    assert listeners.take_plain(batch, HERE) == []
    assert [str(exc) for exc in faults] == ["deaf"]
    assert not listeners.wanting()
    assert listeners.take_plain(batch, HERE) == batch
