"""The figures: ranks, lower bounds where requests were given up, and every request in exactly one place."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.result import (
    CERTAIN,
    LoadResult,
    latency_of,
    operations_of,
    phase_of,
    slices_of,
)
from mcp_probe.workloads.load.tally import FATES, Fate
from mcp_probe.workloads.load.verdict import json_of, judged

MS = 1_000_000
MIX = Mix((Call("a", ({},)), Call("b", ({},))), rate=10, seconds=1)


def test_percentiles_are_by_nearest_rank() -> None:
    found = latency_of([number * MS for number in range(1, 101)])
    assert (found.p50, found.p90, found.p99, found.max) == (50, 90, 99, 100)
    assert not found.is_lower(0.99)


def test_what_was_given_up_counts_with_the_time_it_had_waited_and_makes_a_lower_bound() -> None:
    found = latency_of([MS] * 90, [500 * MS] * 10)
    assert (found.p50, found.p99) == (1, 500)
    assert found.is_lower(0.99)
    assert not found.is_lower(0.9)


def test_a_request_given_up_early_spoils_only_what_it_could_move() -> None:
    found = latency_of([MS] * 50 + [100 * MS] * 49, [10 * MS])
    assert found.lower_bounds == (0.999, 1.0)
    found = latency_of([MS] * 49 + [100 * MS] * 50, [10 * MS])  # one rank more, and the median would be 100 ms
    assert found.lower_bounds == (0.5, 0.999, 1.0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**10)), st.lists(st.integers(0, 10**10)))
def test_lower_bounds_never_exceed_what_patience_would_have_seen(answered: list[int], given_up: list[int]) -> None:
    impatient = latency_of(answered, given_up)
    patient = latency_of([*answered, *(each + 10**11 for each in given_up)])
    for share, low, true in (
        (0.5, impatient.p50, patient.p50),
        (0.99, impatient.p99, patient.p99),
        (1.0, impatient.max, patient.max),
    ):
        if low is None or true is None:
            assert low is true is None
        else:
            assert low <= true
            assert true <= CERTAIN * low * (1 + 1e-9) or impatient.is_lower(share)


def log_of(rows: list[tuple[int, int, int, Fate]]) -> Log:
    """Rows of (call, due ms, answered ms, fate); each was sent when it was due."""
    log = Log(begun_ns=MS)
    for call, due, done, fate in rows:
        log.add(call, MS + due * MS, MS + due * MS, MS + done * MS, fate, "" if fate == "ok" else "it broke")
    log.offered_until_ns = max(log.due_ns)
    log.ended_ns = max(log.done_ns)
    return log


def test_failures_are_counted_and_kept_out_of_the_latency() -> None:
    log = log_of(
        [(0, 0, 100, "ok"), (0, 100, 101, "tool error"), (1, 200, 300, "ok"), (1, 1000, 1001, "transport error")]
    )
    phase = phase_of(log, 5.0)
    assert (phase.due, phase.failed, phase.answered) == (4, 2, 3)
    assert phase.due_to_answer.n == 2
    assert phase.offered_per_s == 3.0
    first, second = operations_of(log, MIX)
    assert (first.name, first.due, first.failed, first.latency.max) == ("a", 2, 1, 100)
    assert (second.due, second.failed) == (2, 1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 900), st.integers(0, 500), st.sampled_from(FATES)), min_size=2)
)
def test_every_request_is_in_exactly_one_place(rows: list[tuple[int, int, int, Fate]]) -> None:
    log = log_of([(call, due, due + took, fate) for call, due, took, fate in rows])
    phase = phase_of(log, 5.0)
    assert sum(phase.fates.values()) == phase.due == len(rows)
    assert sum(row.due for row in operations_of(log, MIX)) == len(rows)
    assert sum(part.due for part in slices_of(log)) in (0, len(rows))


def result_of(log: Log, closed: Log | None = None) -> LoadResult:
    return LoadResult(
        target="python shop.py",
        transport="stdio",
        protocol="2026-07-28",
        server="shop 1",
        mix=MIX,
        open=phase_of(log, 5.0),
        closed=None if closed is None else phase_of(closed, 5.0),
        operations=operations_of(log, MIX),
        slices=slices_of(log),
        failures=(),
        foreign_cores=0.0,
        machine={},
    )


def test_a_server_that_answers_all_keeps_up() -> None:
    log = log_of([(0, due, due + 5, "ok") for due in range(0, 1000, 10)])
    assert judged(result_of(log)).name == "keeps up"


def test_a_server_that_answers_too_few_does_not_keep_up() -> None:
    log = log_of([(0, due, 2 * due + 5, "ok") for due in range(0, 4000, 10)])
    verdict = judged(result_of(log))
    assert verdict.name == "does not keep up"
    assert "100/s were sent and 50" in verdict.sentences[0]
    assert verdict.told_up_to_per_s is None


def test_one_stall_at_the_end_is_not_a_server_that_does_not_keep_up() -> None:
    log = log_of([(0, due, due + (5 if due < 3800 else 4500 - due), "ok") for due in range(0, 4000, 10)])
    assert judged(result_of(log)).name == "keeps up"


def test_requests_that_were_given_up_are_told_at_once() -> None:
    log = log_of([(0, 0, 5, "ok"), (0, 10, 500, "cancelled")])
    assert judged(result_of(log)).name == "does not keep up"


def closed_log(sent_late_ms: int) -> Log:
    """100 requests, 10 ms apart, of which a waiting client sent half so late; each was answered 2 ms after that."""
    log = Log(begun_ns=MS)
    for number in range(100):
        due = MS + 10 * number * MS
        sent = due + (sent_late_ms * MS if number % 2 else 0)
        log.add(0, due, sent, sent + 2 * MS, "ok")
    log.offered_until_ns = log.ended_ns = max(log.done_ns)
    return log


def test_coordinated_omission_is_spoken_of_where_it_hides_something() -> None:
    log = log_of([(0, due, due + 5, "ok") for due in range(0, 1000, 10)])
    text = " ".join(page(result_of(log, closed_log(sent_late_ms=300)), width=100, color=False).split())
    assert "reports p99 2.0 ms. Counted from when its requests were due it is 302 ms" in text.replace(" │ │ ", " ")
    assert "coordinated omission" not in page(result_of(log, closed_log(sent_late_ms=0)), width=100, color=False)
    assert "coordinated omission" not in page(result_of(log), width=100, color=False)


def test_what_a_waiting_client_never_sent_counts_as_having_waited_to_the_end() -> None:
    log = closed_log(sent_late_ms=0)
    for number in range(100, 150):
        log.add(0, MS + 10 * number * MS, 0, MS + 2000 * MS, "not sent")
    phase = phase_of(log, 5.0)
    assert phase.sent_to_answer.n == 100
    assert phase.due_to_answer.n == 150
    assert phase.due_to_answer.p90 is not None
    assert phase.due_to_answer.p90 >= 500
    assert phase.due_to_answer.is_lower(0.9)


def late_log(server_ms: int, interval_ms: int = 10, sent_every_ms: int = 20, count: int = 400) -> Log:
    """``count`` requests, due every ``interval_ms`` and sent every ``sent_every_ms``; each answered so long after."""
    log = Log(begun_ns=MS)
    for number in range(count):
        sent = MS + sent_every_ms * number * MS
        log.add(0, MS + interval_ms * number * MS, sent, sent + server_ms * MS, "ok")
    log.offered_until_ns, log.ended_ns = max(log.due_ns), max(log.done_ns)
    return log


def test_offered_sent_and_answered_are_three_rates() -> None:
    """Due at 100/s, sent at 50/s, and answered at 40/s: each from the beginning to its own last one."""
    log = late_log(0)
    for number in range(len(log)):
        log.done_ns[number] = MS + 25 * number * MS
    log.ended_ns = max(log.done_ns)
    phase = phase_of(log, 5.0)
    assert (phase.offered_per_s, phase.sent_per_s, round(phase.answered_per_s, 1)) == (100, 50, 40.1)
    assert phase.late_at_end_s == 399 * 0.01


def test_a_late_generator_is_blamed_and_not_the_server() -> None:
    result = result_of(late_log(5))
    verdict = judged(result)
    assert (verdict.name, verdict.told_up_to_per_s) == ("cannot be told", 50)
    text = " ".join(page(result, width=200, color=False).split())
    assert "The generator is to blame: 100/s were due and it sent 50/s" in text
    assert "Whether it keeps up cannot be told above 50/s; nor" in text
    assert json_of(result)["verdict"]["told_up_to_per_s"] == 50


def test_a_generator_that_was_late_for_long_and_caught_up_is_blamed_as_well() -> None:
    """400 requests, due every 10 ms; nothing is sent from 1 to 3 s, and all that was due by then at 3 s."""
    log = Log(begun_ns=MS)
    for due in range(0, 4000, 10):
        sent = 3000 if 1000 <= due < 3000 else due
        log.add(0, MS + due * MS, MS + sent * MS, MS + (sent + 5) * MS, "ok")
    log.offered_until_ns, log.ended_ns = max(log.due_ns), max(log.done_ns)
    result = result_of(log)
    verdict = judged(result)
    assert result.open.sent_per_s == result.open.offered_per_s
    assert (verdict.name, verdict.told_up_to_per_s) == ("cannot be told", 0)
    assert "it sent one request in ten 1.60 s late or more" in verdict.sentences[0]


def test_a_slow_server_is_not_excused_by_a_generator_in_time() -> None:
    """The twin of a late generator: the same requests were sent when they were due and answered as late."""
    log = log_of([(0, due, 2 * due + 5, "ok") for due in range(0, 4000, 10)])
    verdict = judged(result_of(log))
    assert verdict.name == "does not keep up"
    assert not any("generator" in sentence for sentence in verdict.sentences)


def test_a_server_that_is_too_slow_for_what_a_late_generator_sends_does_not_keep_up() -> None:
    log = late_log(0)
    for number in range(len(log)):
        log.done_ns[number] = MS + 40 * number * MS
    log.ended_ns = max(log.done_ns)
    verdict = judged(result_of(log))
    assert verdict.name == "does not keep up"
    assert "50/s were sent and 25.1/s were answered" in verdict.sentences[0]
    assert "The generator is to blame" in verdict.sentences[1]


def test_one_late_request_at_the_end_is_no_late_generator() -> None:
    log = log_of([(0, due, due + 5, "ok") for due in range(0, 1000, 10)])
    log.sent_ns[99] += 300 * MS
    log.done_ns[99] += 300 * MS
    log.ended_ns = max(log.done_ns)
    assert judged(result_of(log)).name == "keeps up"


def test_requests_given_up_by_a_generator_that_stood_still_say_nothing_of_the_server() -> None:
    log = log_of([*((0, due, due + 5, "ok") for due in range(0, 1000, 10)), (0, 1000, 2000, "cancelled")])
    assert judged(result_of(log)).name == "does not keep up"
    log.pauses = [(MS + 1100 * MS, MS + 1900 * MS)]
    verdict = judged(result_of(log))
    assert verdict.name == "cannot be told"
    assert "stood still for 800 ms of the 1.00 s" in verdict.sentences[0]
    assert "The generator's own loop stood still 1 time" in page(result_of(log), width=140, color=False)


def test_slices_count_what_was_sent_in_them() -> None:
    slices = slices_of(late_log(5))
    assert sum(part.due for part in slices) == 400
    assert [part.sent for part in slices] == [20] * 10


def test_no_label_of_ours_is_cut_however_narrow_the_page() -> None:
    log = log_of([(number % 2, due, due + 90_000, "ok") for number, due in enumerate(range(0, 4000, 10))])
    wide = page(result_of(log, log), width=200, color=False)
    assert "…" not in wide
    for width in (60, 70, 80, 100):
        assert "…" not in page(result_of(log, log), width=width, color=False)


def test_no_line_is_wider_than_asked() -> None:
    log = log_of([(0, due, due + 5, "ok") for due in range(0, 1000, 10)])
    for width in (60, 80, 100):
        assert max(map(len, page(result_of(log, log), width=width, color=False).splitlines())) <= width
