"""Which requests get a record at a high rate; and that what is counted without one is counted exactly."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.capture.live_requests import Finished
from mcp_probe.model import QUEUE, Frame, OperationSummary, RequestGroup, RequestRecord
from mcp_probe.record import sampling
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import WAKE_LOOP, RawRequest
from mcp_probe.record.sampling import Groups, Sampler
from tests.frames import MS, make_end, make_header

RECORDS = 4


@pytest.fixture(autouse=True)
def few_records() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "RECORDS_A_DRAIN", RECORDS)
        yield


@dataclass(frozen=True)
class Call:
    name: str
    arrival: int  # ms
    queued: int
    busy: int
    earlier: int = 0  # it may have arrived so much before
    outcome: str = "ok"

    @property
    def end(self) -> int:
        return self.arrival + self.queued + self.busy

    def raw(self, number: int) -> RawRequest:
        raw = RawRequest(number, "request", "tools/call", self.name, "stdio")
        raw.arrival_ns = self.arrival * MS
        raw.arrival_earliest_ns = (self.arrival - self.earlier) * MS
        raw.taken_ns = raw.first_step_ns = first = (self.arrival + self.queued) * MS
        raw.add_mark((1, first, first, first, first, self.end * MS, WAKE_LOOP))
        raw.result_ns = raw.write_taken_ns = raw.end_ns = self.end * MS
        raw.write_seen = raw.ended = True
        raw.outcome = self.outcome  # type: ignore[assignment]
        return raw


def raws_of(calls: Sequence[Call]) -> list[RawRequest]:
    return [call.raw(number) for number, call in enumerate(sorted(calls, key=lambda call: call.end), 1)]


def folded(frames: Sequence[Frame]) -> tuple[Fold, dict[str, OperationSummary]]:
    fold = Fold()
    fold.add_all([make_header(), *frames, make_end()])
    return fold, {row.name: row for row in fold.summary().operations}


def sampled(drains: Sequence[Sequence[Call]], seed: int = 1) -> list[Frame]:
    """The frames of these drains, as the collector makes them."""
    sampler = Sampler(seed=seed)
    frames: list[Frame] = []
    for calls in drains:
        picked = sampler.pick(raws_of(calls), [])
        frames += [assemble(raw, raw.end_ns or 0, weight=weight) for raw, weight in picked]
        frames += sampler.groups.take()
    return frames


def unsampled(drains: Sequence[Sequence[Call]]) -> list[Frame]:
    return [assemble(raw, raw.end_ns or 0) for calls in drains for raw in raws_of(calls)]


calls = st.builds(
    Call,
    name=st.sampled_from(["add", "echo", "search"]),
    arrival=st.integers(0, 3_000),
    queued=st.integers(0, 40),
    busy=st.integers(0, 1_500),
    earlier=st.integers(0, 5),
    outcome=st.sampled_from(["ok", "ok", "ok", "ok", "error", "tool_error", "cancelled"]),
)


@given(st.lists(st.lists(calls, max_size=60), max_size=5), st.integers(0, 99))
def test_counts_and_durations_are_those_of_all_requests(drains: list[list[Call]], seed: int) -> None:
    frames = sampled(drains, seed)
    fold, rows = folded(frames)
    true_fold, true_rows = folded(unsampled(drains))
    assert rows.keys() == true_rows.keys()
    for name, row in rows.items():
        true = true_rows[name]
        assert (row.count, row.errors, row.cancelled) == (true.count, true.errors, true.cancelled)
        assert row.total_ms == true.total_ms
        for key in ("total_ms_p50", "total_ms_p95", "total_ms_p99", "total_ms_max"):
            assert row.quality.get(key) == true.quality.get(key)
    for operation, tally in fold._settled().operations.by_key.items():
        assert tally.totals.least.rows == true_fold._settled().operations.by_key[operation].totals.least.rows
    recorded = fold.summary().requests.recorded
    assert recorded == sum(isinstance(frame, RequestRecord) for frame in frames)
    assert fold.summary().requests.count == sum(map(len, drains))


@given(st.lists(st.lists(calls, max_size=60), max_size=5), st.integers(0, 99))
def test_every_request_that_failed_or_was_cancelled_has_its_record(drains: list[list[Call]], seed: int) -> None:
    records = [frame for frame in sampled(drains, seed) if isinstance(frame, RequestRecord) and frame.outcome != "ok"]
    assert len(records) == sum(call.outcome != "ok" for drain in drains for call in drain)
    assert {record.weight for record in records} <= {1}


def sampling_of(waiting: int) -> int:
    return next(1 << power for power in range(20) if waiting <= RECORDS << power)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 99))
def test_sums_by_weights_are_right_where_all_calls_are_alike(sizes: list[int], seed: int) -> None:
    drains = [[Call("add", 10 * number, 2, 7) for number in range(size)] for size in sizes]
    frames = sampled(drains, seed)
    row = folded(frames)[1]["add"]
    assert (row.budget_ms.busy, row.budget_ms.queue_transport) == (7, 2)
    assert row.steps.mean == 1
    weights = [frame.weight for frame in frames if isinstance(frame, RequestRecord)]
    assert abs(sum(weights) - sum(sizes)) <= sum(sampling_of(size) for size in sizes)
    assert (row.quality.get("busy") is not None) == (max(weights) > 1)


def test_the_weighted_mean_comes_near_the_true_one_whatever_the_order() -> None:
    """Every second call is the long one: who took every second call would see only these."""
    drains = [[Call("add", 20 * number, 0, 1 if number % 2 else 9) for number in range(256)] for _ in range(40)]
    frames = sampled(drains)
    busy = folded(frames)[1]["add"].budget_ms.busy
    assert busy == pytest.approx(5, abs=1)
    # One in 64, and the one percent that took longest: none here, for no call takes longer than 99 % of them.
    assert len([frame for frame in frames if isinstance(frame, RequestRecord)]) <= 4 * 40 + 2


def test_the_longest_calls_have_records_and_stand_for_themselves() -> None:
    quick = [Call("add", 10 * number, 0, 1) for number in range(400)]
    sampler = Sampler(seed=1)
    sampler.pick(raws_of(quick), [])
    picked = sampler.pick(raws_of([*quick, Call("add", 5_000, 0, 50)]), [])
    assert [weight for raw, weight in picked if (raw.end_ns or 0) - (raw.arrival_ns or 0) == 50 * MS] == [1]


def test_no_call_that_is_slow_by_its_limit_goes_without_a_record() -> None:
    calls = [Call("add", 10 * number, 0, 5) for number in range(100)]
    assert len(Sampler(slow_request_ms=4.0).pick(raws_of(calls), [])) == 100
    assert len(Sampler(slow_request_ms=6.0).pick(raws_of(calls), [])) < 20


def test_the_first_call_of_an_operation_has_a_record_and_stands_for_itself() -> None:
    picked = Sampler(seed=1).pick(raws_of([Call("add", 10 * number, 0, 5) for number in range(64)]), [])
    assert picked[0][0].id == 1
    assert picked[0][1] == 1
    assert {weight for _, weight in picked[1:]} == {16}


def test_a_request_that_was_told_as_open_has_a_record() -> None:
    raws = raws_of([Call("add", 10 * number, 0, 5) for number in range(64)])
    for raw in raws[20:40]:
        raw.seen_open = True
    picked = {raw.id: weight for raw, weight in Sampler(seed=1).pick(raws, [])}
    assert [picked.get(raw.id) for raw in raws[20:40]] == [1] * 20


def test_a_full_queue_keeps_a_request_that_was_told_as_open() -> None:
    finished = Finished(2, lambda: None)
    raws = raws_of([Call("add", 10 * number, 0, 5) for number in range(4)])
    raws[3].seen_open = True
    for raw in raws:
        finished.put(raw)
    assert [raw.id for raw in finished.take()] == [1, 2, 4]
    assert [group.count for group in finished.take_groups()] == [1]


def test_few_requests_are_all_looked_at() -> None:
    sampler = Sampler()
    assert [weight for _, weight in sampler.pick(raws_of([Call("add", 0, 0, 5)] * RECORDS), [])] == [1] * RECORDS
    assert sampler.groups.take() == []


@pytest.mark.parametrize(("apart_ms", "gaps", "at_once"), [(0, 62, 1), (5, 0, 1), (-3, 0, 2)])
def test_whether_a_client_sends_one_by_one_is_known_of_all(apart_ms: int, gaps: int, at_once: int) -> None:
    calls = [Call("add", (10 + apart_ms) * number, 0, 10) for number in range(64)]
    signals = folded(sampled([calls]))[0].summary().signals
    assert abs(signals.serial_gaps - gaps) <= 1
    assert signals.max_in_flight == at_once


def test_a_long_request_that_ends_last_was_in_flight_with_the_others() -> None:
    calls = [Call("add", 20 + 10 * number, 0, 10) for number in range(63)]
    signals = folded(sampled([[*calls, Call("long", 0, 0, 1_000)]]))[0].summary().signals
    assert (signals.serial_gaps, signals.max_in_flight) == (0, 2)


def test_a_request_that_is_still_alive_was_in_flight_with_the_others() -> None:
    sampler = Sampler(seed=1)
    alive = RawRequest(1, "request", "tools/call", "hang", "stdio")
    alive.arrival_ns = 0
    sampler.pick(raws_of([Call("add", 20 + 10 * number, 0, 10) for number in range(64)]), [alive])
    [group] = sampler.groups.take()
    assert (group.serial_gaps, group.overlapping > 50) == (0, True)


def test_a_group_says_what_could_not_be_seen() -> None:
    groups = Groups()
    raw = Call("add", 0, 0, 5).raw(1)
    raw.transport_seen = False
    groups.add(raw)
    [group] = groups.take()
    assert not group.seen & QUEUE
    assert folded([group])[1]["add"].quality["total_ms_p50"].tag == "lower"


def test_groups_are_told_once() -> None:
    groups = Groups()
    for number, busy in enumerate((5, 5, 8)):
        groups.add(Call("add", 0, 0, busy).raw(number))
    assert [group.count for group in groups.take()] == [3]
    assert groups.take() == []
    groups.add(Call("add", 7, 0, 5).raw(9))
    [group] = groups.take()
    assert (group.count, group.first_ns, group.last_ns) == (1, 7 * MS, 12 * MS)
    assert [count for _, count, _ in group.durations] == [1]


def test_a_group_names_once_those_of_its_requests_that_were_told_as_open() -> None:
    groups = Groups()
    raws = raws_of([Call("add", 10 * number, 0, 5) for number in range(6)])
    for number, raw in enumerate(raws):
        raw.seen_open = number % 2 == 1
        groups.add(raw)
    assert [(group.count, group.closes) for group in groups.take()] == [(6, (2, 4, 6))]
    groups.add(Call("add", 70, 0, 5).raw(9))
    assert [(group.count, group.closes) for group in groups.take()] == [(1, ())]


def test_names_without_end_are_counted_under_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_GROUPS", 8)
    groups = Groups()
    for number in range(50):
        groups.add(Call(f"tool-{number}", 0, 0, 5).raw(number))
    taken = groups.take()
    assert sum(group.count for group in taken) == 50
    assert len(taken) == 9
    assert {group.name: group.count for group in taken}["other"] == 42


def test_threads_that_count_at_once_lose_nothing() -> None:
    groups = Groups()
    taken: list[RequestGroup] = []
    raws = [Call("add", 0, 0, number % 7).raw(number) for number in range(2_000)]

    def count() -> None:
        for raw in raws:
            groups.add(raw)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += groups.take()
    for thread in threads:
        thread.join()
    taken += groups.take()
    counts: Counter[int] = Counter()
    for group in taken:
        for bucket, number, _ in group.durations:
            counts[bucket] += number
    assert sum(counts.values()) == sum(group.count for group in taken) == 8_000


# --- how many records in a time -----------------------------------------------------------------------------


def test_after_a_quiet_time_a_drain_may_make_all_its_records() -> None:
    allowance = sampling.Allowance()
    assert allowance.at(0) == sampling.RECORDS_A_DRAIN
    allowance.take(sampling.RECORDS_A_DRAIN)
    assert allowance.at(3600 * 1000 * MS) == sampling.RECORDS_A_DRAIN


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 5_000)), min_size=1, max_size=50))
def test_in_the_long_run_no_more_records_are_made_than_a_second_allows(drains: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "RECORDS_A_DRAIN", 2_048)
        allowance, now, made = sampling.Allowance(), 0, 0
        for pause_ms, waiting in drains:
            now += pause_ms * MS
            taken = min(waiting, allowance.at(now))
            allowance.take(taken)
            made += taken
        fewest = sampling.FEWEST_RECORDS * len(drains)
        assert made <= 2_048 + now / 1e9 * sampling.RECORDS_A_SECOND + fewest


def test_a_drain_picks_about_as_many_as_it_is_allowed() -> None:
    drain = raws_of([Call("add", 10 * number, 0, 5) for number in range(64)])
    assert len(Sampler(seed=1).pick(drain, [], 64)) == 64
    picked = Sampler(seed=1).pick(drain, [], 16)
    assert 16 <= len(picked) <= 17  # and the first one
    assert {weight for _, weight in picked} == {1, 4}
