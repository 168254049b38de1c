"""Sentences on literal readings: each names what held the requests up, and stays silent where nothing did."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.explain import Seen, explain, reasons
from mcp_probe.aggregate.seen import shares_of
from mcp_probe.model import Await, AwaitKind, Frame, JobTimes, PoolSample, RequestRecord
from tests.frames import MS, make_header, make_loop_sample, make_request, make_step, make_wait


def pool(name: str = "app", size: float | None = 4, **given: Any) -> PoolSample:
    values: dict[str, Any] = {
        "at_ns": 500 * MS,
        "span_ns": 500 * MS,
        "pool": 1,
        "name": name,
        "made_at": None,
        "max": size,
        **dict.fromkeys(("borrowed_peak", "active_peak", "pending_peak", "active_ns", "pending_ns", "at_limit_ns"), 0),
        **dict.fromkeys(("submitted", "finished", "abandoned", "run_ns", "cpu_ns", "return_ns", "returned"), 0),
        **dict.fromkeys(("transport_jobs", "transport_wait_max_ns", "transport_wait_ns"), 0),
        "wait": (),
        "holders": (),
    }
    return PoolSample(**{**values, **given})


def threaded(number: int, wait_ms: float, run_ms: float = 100, executor: str = "app", **given: Any) -> RequestRecord:
    """A call that came at 0, waited for a thread and ran on it."""
    wait, run = round(wait_ms * MS), round(run_ms * MS)
    job = JobTimes(executor, submit_ns=0, start_ns=wait, finish_ns=wait + run, resumed_ns=wait + run)
    return make_request(number, executor_wait=wait, executor_run=run, jobs=(job,), **given)


def seen(*frames: Frame) -> Seen:
    return Seen.of([make_header(), *frames])


def in_waves(count: int, width: int, run_ms: float = 100) -> list[RequestRecord]:
    return [threaded(number + 1, wait_ms=number // width * run_ms, run_ms=run_ms) for number in range(count)]


def test_waves_at_a_pool_are_counted_with_their_step() -> None:
    found = seen(pool(), *in_waves(20, 4))
    assert explain(found) == (
        "20 requests at once took 5 waves: pool `app` has 4 threads, and the wait for one rose in steps of 100 ms to "
        "400 ms."
    )


def test_a_second_wave_is_no_staircase() -> None:
    assert explain(seen(pool(), *in_waves(8, 4))).endswith("and the wait for one rose to 100 ms.")


def test_waves_are_recognised_on_a_slow_machine() -> None:
    late = [threaded(number + 1, wait_ms=number // 4 * 118 + number % 4, run_ms=100 + number) for number in range(20)]
    assert reasons(seen(pool(), *late))[0].code == "waves"


def test_jobs_of_unlike_length_wait_without_waves() -> None:
    mixed = [threaded(1, 0, 10), threaded(2, 0, 500), threaded(3, 10, 20), threaded(4, 30, 300), threaded(5, 330, 5)]
    found = reasons(seen(pool(size=2), *mixed))
    assert found[0].code == "thread-wait"
    assert "pool `app` has 2 threads, up to 5 jobs wanted one at once" in found[0].sentence


def test_a_pool_that_nobody_waited_for_explains_nothing() -> None:
    found = reasons(seen(pool(size=20), *in_waves(20, 20)))
    assert [reason.code for reason in found] == ["nothing-waited"]
    assert found[0].sentence == (
        "Nothing in the server waited: up to 20 in flight at once, each ran on a thread for 100 ms of its 100 ms."
    )


def test_samples_of_other_requests_do_not_make_waves() -> None:
    """A pool sample reaches over the border of two stretches; what its own requests did counts."""
    loaded = pool("limiter", 40, transport_wait_max_ns=90 * MS, borrowed_peak=40, holders=(("nap", 60, 6000 * MS),))
    calls = [make_request(number, awaiting=100 * MS) for number in range(1, 4)]
    assert [reason.code for reason in reasons(seen(loaded, *calls))] == ["nothing-waited"]


def test_a_transport_without_threads_is_named_with_who_holds_them() -> None:
    starved = pool("limiter", 40, transport_wait_max_ns=90 * MS, transport_wait_ns=900 * MS, borrowed_peak=40)
    calls = [
        threaded(number, 0, 100, "limiter", name="nap", write_wait=(50 * MS if number > 20 else 0))
        for number in range(1, 41)
    ]
    found = reasons(seen(starved, *calls))[0]
    assert found.code == "transport-starved"
    assert "`nap` held all 40 threads of `limiter`" in found.sentence
    assert "waited up to 90 ms" in found.sentence


def test_answers_queued_at_the_writer() -> None:
    calls = [make_request(number, busy=MS // 10, write_wait=number * MS) for number in range(1, 1001)]
    assert explain(seen(*calls)) == (
        "Finished responses queued 500 ms at the one stdout writer at the median, 1.0 s at worst, with up to "
        "1,000 requests read and not yet answered; a handler took 0.1 ms."
    )


def test_the_holder_of_the_loop_is_named_and_the_anonymous_queue_gives_way() -> None:
    step = make_step(0, 100 * MS, request=99, operation="block")
    victims = [
        make_request(number, "quick", ready_wait=100 * MS, busy=MS, waits=(make_wait(0, 100 * MS),), loop=0)
        for number in (1, 2, 3)
    ]
    found = reasons(seen(step, *victims))
    assert [reason.code for reason in found] == ["loop-held"]
    assert found[0].sentence.startswith("`block` held the event loop")
    assert "3 requests that could have run waited 100 ms for it on average" in found[0].sentence


def test_a_queue_at_the_loop_without_a_name_is_still_told() -> None:
    calls = [make_request(number, busy=2 * MS, queue_dispatch=number * 2 * MS) for number in range(1, 51)]
    found = reasons(seen(*calls))[0]
    assert found.code == "loop-queue"
    assert "With 50 requests in flight" in found.sentence


def crowd(**loop: Any) -> list[str]:
    """Codes for twenty requests that waited for a loop whose thread ran and queued for so long."""
    calls = [make_request(number, busy=2 * MS, ready_wait=number * 2 * MS) for number in range(1, 21)]
    return [reason.code for reason in reasons(seen(make_loop_sample(**loop), *calls))]


def test_a_loop_whose_thread_ran_less_than_it_waited_to_run_is_not_crowded() -> None:
    assert crowd(cpu_ns=40 * MS, run_queue_ns=60 * MS) == ["no-cpu"]


def test_a_loop_whose_thread_mostly_ran_is() -> None:
    assert crowd(cpu_ns=40 * MS, run_queue_ns=30 * MS) == ["loop-queue"]
    assert crowd(cpu_ns=40 * MS, run_queue_ns=None) == ["loop-queue"]


def test_how_busy_the_loop_was_is_told_of_the_requests_own_time_only() -> None:
    calls = [make_request(number, busy=2 * MS, ready_wait=number * 2 * MS) for number in range(1, 21)]
    lasted = max(each.end_ns for each in calls) - min(each.arrival_ns for each in calls)
    fitting = make_loop_sample([lasted // 2], span_ns=lasted)
    assert "(busy 50% of the time)" in explain(seen(fitting, *calls))
    assert "busy" not in explain(seen(make_loop_sample([lasted // 2], span_ns=20 * lasted), *calls))


def test_threads_that_compute_share_one_interpreter() -> None:
    busy = pool("limiter", 40, finished=8, cpu_ns=8 * 20 * MS, run_ns=8 * 160 * MS)
    calls = [threaded(number, 0, 160, "limiter") for number in range(1, 9)]
    found = reasons(seen(busy, *calls))[0]
    assert found.code == "gil"
    assert "Up to 8 threads of `limiter` computed at once" in found.sentence
    assert "160 ms for 20 ms of CPU" in found.sentence


def test_threads_that_sleep_do_not() -> None:
    idle = pool("limiter", 40, finished=8, cpu_ns=8 * MS, run_ns=8 * 160 * MS)
    calls = [threaded(number, 0, 160, "limiter") for number in range(1, 9)]
    assert [reason.code for reason in reasons(seen(idle, *calls))] == ["nothing-waited"]


def test_one_long_step_says_that_nothing_else_could_run() -> None:
    step = make_step(0, 200 * MS, request=1, operation="encode", cpu_ns=190 * MS)
    assert explain(seen(step, make_request(1, "encode", busy=200 * MS))) == (
        "One at a time, each held the event loop for 200 ms of its 200 ms, 95% of it on the CPU: nothing else could "
        "run meanwhile."
    )


def test_short_requests_one_by_one_are_split_by_stage() -> None:
    parts: dict[str, Any] = {
        "queue_transport": MS // 4,
        "busy": MS // 2,
        "write_wait": MS // 20,
        "write_flush": MS // 5,
    }
    calls = [make_request(number, arrival_ns=number * 10 * MS, **parts) for number in range(1, 20)]
    assert explain(seen(*calls)) == (
        "One at a time, a request took 1.00 ms in the server: 0.25 ms to be read and dispatched, 0.50 ms on the event "
        "loop, 0.25 ms to be written."
    )


def test_calls_of_microseconds_are_told_in_microseconds() -> None:
    calls = [make_request(number, arrival_ns=number * MS, busy=2_100, kind="function") for number in range(1, 20)]
    assert explain(seen(*calls)) == "One at a time, a call took 2.1 µs: 2.1 µs on the event loop."


def test_a_client_that_reads_slowly_is_named() -> None:
    calls = [make_request(number, busy=MS, write_flush=300 * MS) for number in range(1, 5)]
    assert reasons(seen(*calls))[0].code == "slow-reader"


def test_one_late_write_is_no_slow_client() -> None:
    calls = [
        make_request(number, arrival_ns=number * 10 * MS, busy=MS, write_flush=MS // 10) for number in range(1, 20)
    ]
    late = make_request(20, arrival_ns=500 * MS, busy=MS, write_flush=40 * MS)
    assert "slow-reader" in [reason.code for reason in reasons(seen(late))]
    assert "slow-reader" not in [reason.code for reason in reasons(seen(*calls, late, *_thousand_quick()))]


def test_encoding_a_large_answer_is_not_the_client_s_slowness() -> None:
    encoded = [make_request(number, busy=MS, write_flush=60 * MS, encode_ns=55 * MS) for number in range(1, 5)]
    found = reasons(seen(*encoded))
    assert [reason.code for reason in found] == ["encoding"]
    assert found[0].share == pytest.approx(55 / 61)
    assert found[0].sentence == (
        "Encoding an answer held the event loop for 55 ms at the median, 55 ms at worst, before a byte of it was "
        "written."
    )
    slow = [make_request(number, busy=MS, write_flush=300 * MS, encode_ns=40 * MS) for number in range(1, 5)]
    assert [reason.code for reason in reasons(seen(*slow))] == ["slow-reader", "encoding"]
    assert "writing one took 260 ms at the median" in reasons(seen(*slow))[0].sentence


def _thousand_quick() -> list[RequestRecord]:
    return [make_request(number, arrival_ns=number * 10 * MS, busy=MS // 2) for number in range(100, 400)]


def test_requests_that_lay_in_the_pipe_are_told_where_the_client_says_when_it_sent_them() -> None:
    calls = [make_request(number, arrival_ns=400 * MS, sent_ns=0, busy=10 * MS) for number in (1, 2, 3)]
    found = reasons(seen(*calls))[0]
    assert (found.code, round(found.share, 2)) == ("pipe-wait", 0.98)
    assert "lay unread in the pipe for 400 ms at the median" in found.sentence


def test_a_loop_without_a_cpu_is_the_machines_fault() -> None:
    step = make_step(0, 100 * MS, request=99, operation="block", cause="run-queue")
    victims = [
        make_request(number, "quick", ready_wait=100 * MS, busy=MS, waits=(make_wait(0, 100 * MS),), loop=0)
        for number in (1, 2, 3)
    ]
    found = reasons(seen(step, *victims))[0]
    assert found.code == "no-cpu"
    assert found.sentence.startswith("The machine had no CPU for the event loop for up to 100 ms")


def test_profiled_functions_have_no_server() -> None:
    calls = [make_request(number, kind="function", awaiting=100 * MS) for number in (1, 2, 3)]
    assert explain(seen(*calls)) == (
        "Nothing waited: up to 3 in flight at once, each awaited something that was not seen for 100 ms of its 100 ms."
    )


def test_a_stretch_has_its_own_requests_only() -> None:
    calls = [make_request(number, arrival_ns=number * 100 * MS, awaiting=5 * MS) for number in range(10)]
    found = Seen.of([make_header(), *calls], 250 * MS, 450 * MS)
    assert [each.id for each in found.requests] == [3, 4]
    assert found.summary.requests.count == 2


def test_one_operation_among_others() -> None:
    slow = [make_request(number, "slow", awaiting=500 * MS) for number in (1, 2)]
    quick = make_request(3, "quick", busy=MS)
    assert "500 ms" in explain(seen(*slow, quick), "slow")
    assert "a request took 1.00 ms" in explain(seen(*slow, quick), "quick")


def test_no_requests_no_sentence() -> None:
    assert explain(seen()) == ""


def test_requests_that_follow_each_other_are_not_in_flight_together() -> None:
    calls = [make_request(number, arrival_ns=number * 10 * MS, awaiting=10 * MS) for number in range(5)]
    assert seen(*calls).most_in_flight == 1


# --- what is only bounded -----------------------------------------------------------------------------


def bounded(number: int, part: str, lo_ms: int, hi_ms: int, **given: Any) -> RequestRecord:
    """A request of which one part lies between two ends; the budget has the lower one."""
    rows = ((part, "bounded", lo_ms * MS, hi_ms * MS),)
    return make_request(number, **{part: lo_ms * MS, "quality": rows, **given})


def test_a_queue_at_the_loop_has_both_ends_of_its_wait_and_of_its_share() -> None:
    calls = [bounded(number, "queue_transport", 20, 120, busy=60 * MS) for number in range(1, 11)]
    assert explain(seen(*calls)) == (
        "With 10 requests in flight each waited 20-120 ms for its turn on the event loop, 25-67% of its time."
    )


def test_a_wait_inside_the_handler_does_not_move_the_whole() -> None:
    calls = [bounded(number, "ready_wait", 20, 60, awaiting=80 * MS) for number in range(1, 11)]
    assert explain(seen(*calls)).endswith("waited 20-60 ms for its turn on the event loop, 20-60% of its time.")


def test_an_earlier_arrival_makes_every_other_share_smaller() -> None:
    parts: dict[str, Any] = {"ready_wait": 40 * MS, "awaiting": 60 * MS}
    calls = [bounded(number, "queue_transport", 0, 100, **parts) for number in range(1, 11)]
    found = seen(*calls)
    assert shares_of(found, "ready_wait") == (0.2, 0.4)
    assert shares_of(found, "ready_wait", "queue_transport") == (0.4, 0.7)


def test_what_others_cost_has_both_ends() -> None:
    step = make_step(0, 100 * MS, request=99, operation="block")
    waits = (make_wait(60 * MS, 100 * MS, earliest_ns=0),)
    victims = [
        bounded(number, "ready_wait", 40, 100, name="quick", busy=MS, waits=waits, loop=0) for number in (1, 2, 3)
    ]
    (found,) = reasons(seen(step, *victims))
    assert "3 requests that could have run waited 40-100 ms for it on average" in found.sentence


def test_crowding_has_both_ends() -> None:
    waits = (make_wait(60 * MS, 100 * MS, earliest_ns=20 * MS),)
    parts: dict[str, Any] = {"busy": 20 * MS, "awaiting": 40 * MS, "waits": waits, "loop": 0}
    crowded = [bounded(number, "ready_wait", 40, 80, **parts) for number in range(1, 6)]
    (found,) = reasons(seen(*crowded))
    assert found.code == "crowding"
    assert ": 20-80% of their time they waited behind many short steps" in found.sentence


def test_answers_at_the_writer_and_a_slow_client_have_both_ends() -> None:
    queued = [bounded(number, "write_wait", 300, 500, busy=MS) for number in range(1, 6)]
    assert "queued 300-500 ms at the one stdout writer at the median, 300-500 ms at worst" in explain(seen(*queued))
    slow = [bounded(number, "write_flush", 300, 500, busy=MS) for number in range(1, 6)]
    assert "writing one took 300-500 ms at the median, 300-500 ms at worst" in explain(seen(*slow))


def test_an_end_that_nobody_knows_is_told_as_at_least() -> None:
    open_ended = (("ready_wait", "lower", 40 * MS, None),)
    calls = [make_request(number, ready_wait=40 * MS, awaiting=60 * MS, quality=open_ended) for number in range(1, 6)]
    assert "waited at least 40 ms for its turn on the event loop, at least 40% of its time" in explain(seen(*calls))


def test_a_wait_that_may_be_none_is_not_called_none() -> None:
    calls = [bounded(number, "queue_transport", 0, 100, awaiting=100 * MS) for number in range(1, 6)]
    assert explain(seen(*calls)) == (
        "No wait in the server is certain (at most 50% of the time): up to 5 in flight at once, each awaited "
        "something that was not seen for 100 ms of its 100-200 ms."
    )


def test_stages_have_both_ends() -> None:
    calls = [
        make_request(
            number,
            arrival_ns=number * 10 * MS,
            queue_transport=MS // 4,
            busy=MS // 2,
            quality=(("queue_transport", "bounded", MS // 4, MS),),
        )
        for number in range(1, 20)
    ]
    assert explain(seen(*calls)) == (
        "One at a time, a request took 0.75-1.50 ms in the server: 0.25-1.00 ms to be read and dispatched, 0.50 ms on "
        "the event loop."
    )


def test_a_client_that_says_when_it_sent_waited_no_longer_than_until_the_earliest_arrival() -> None:
    calls = [
        bounded(number, "queue_transport", 0, 100, arrival_ns=400 * MS, sent_ns=0, busy=10 * MS) for number in (1, 2, 3)
    ]
    found = reasons(seen(*calls))[0]
    assert found.code == "pipe-wait"
    assert "lay unread in the pipe for 300-400 ms at the median, 300-400 ms at worst" in found.sentence


def awaiting(kind: AwaitKind, thing: str, number: int = 1) -> RequestRecord:
    found = Await(kind, thing, None, 0, 100 * MS, 100 * MS, "exact")
    return make_request(number, awaiting=100 * MS, awaits=(found,))


@pytest.mark.parametrize(
    ("kind", "thing", "words"),
    [
        ("semaphore", "slots", "semaphore `slots` in the server"),
        ("http", "http://backend", "http `http://backend`"),
        ("sleep", "sleep", "sleep"),
    ],
)
def test_what_most_of_the_awaiting_was_for_is_named(kind: AwaitKind, thing: str, words: str) -> None:
    calls = [awaiting(kind, thing, number) for number in (1, 2, 3)]
    assert f"each awaited {words} for 100 ms of its 100 ms" in explain(seen(*calls))


def test_only_what_is_known_to_be_outside_is_called_so() -> None:
    backends = [awaiting("http", f"http://backend-{number}", number) for number in (1, 2, 3)]
    assert "each awaited something outside for 100 ms" in explain(seen(*backends))
    locks = [awaiting("lock", f"lock {number}", number) for number in (1, 2, 3)]
    assert "each awaited something that was not seen for 100 ms" in explain(seen(*locks))


def test_a_part_that_is_longer_than_its_whole_is_not_told() -> None:
    calls = [make_request(number, end_ns=100 * MS, awaiting=300 * MS) for number in (1, 2, 3)]
    assert explain(seen(*calls)).endswith("each awaited something that was not seen.")
