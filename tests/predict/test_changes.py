"""Each change on a window that can be worked out by hand."""

from __future__ import annotations

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.predict.change import Change
from mcp_probe.predict.changes import changed
from mcp_probe.predict.simulate import simulate
from mcp_probe.predict.workload import ANSWER, DELAY, JOB, RELEASE, SUBMIT, Resource, Step, Unit, Workload
from tests.predict.made import MS, call, durations, holding, job, on_thread, runs, sleeps, threads, workload

LOCK = Resource("asyncio.Lock made at server.py:7", "lock", 1)


def ms(made: Workload) -> list[int]:
    return [round(ns / MS) for ns in durations(made)]


def blocking(ns: int, cpu_ns: int) -> Unit:
    return (Step(DELAY, 0, ns, ends=((ANSWER, 0),), cpu_ns=cpu_ns),)


def test_offloaded_calls_that_sleep_run_side_by_side() -> None:
    made = workload([call(blocking(60 * MS, MS)) for _ in range(5)])
    assert ms(made) == [60, 120, 180, 240, 300]
    assert ms(changed(made, [Change("offload", "work")])) == [60, 60, 60, 60, 60]


def test_offloaded_calls_that_compute_gain_nothing_together() -> None:
    made = workload([call(blocking(60 * MS, 60 * MS)) for _ in range(3)])
    assert max(ms(changed(made, [Change("offload", "work")]))) >= 180


def test_offloaded_calls_that_compute_without_the_gil_share_the_processors() -> None:
    free = (blocking(60 * MS, 60 * MS)[0]._replace(is_free=True),)
    one, two, unknown = (workload([call(free) for _ in range(4)], processors=count) for count in (1, 2, 0))
    gone = [Change("offload", "work")]
    assert max(ms(one)) == max(ms(changed(one, gone))) == 240
    assert max(ms(changed(two, gone))) == 120
    assert ms(changed(unknown, gone)) == [60] * 4


def test_who_waits_beside_an_offloaded_call_that_computes_without_the_gil_does_not_wait_for_it() -> None:
    for is_free in (True, False):
        heavy = call((blocking(90 * MS, 90 * MS)[0]._replace(is_free=is_free),))
        quick = call(
            *[tuple(Step(DELAY, 0, MS, ends=((ANSWER, 0),) if n == 9 else ()) for n in range(10))], operation="q"
        )
        after = changed(workload([heavy, quick], processors=2), [Change("offload", "work")])
        assert (ms(after)[1] <= 11) == is_free


def test_who_waits_beside_an_offloaded_call_that_stops_often_waits_for_a_stretch_of_it() -> None:
    heavy = call((blocking(200 * MS, 100 * MS)[0]._replace(idle_ns=100 * MS, stops=200),))
    quick = call(*[tuple(Step(DELAY, 0, MS, ends=((ANSWER, 0),) if n == 9 else ()) for n in range(10))], operation="q")
    assert ms(changed(workload([heavy, quick]), [Change("offload", "work")]))[1] <= 20


def test_a_step_whose_cpu_time_nobody_read_is_taken_to_compute() -> None:
    made = workload([call(blocking(60 * MS, -1)) for _ in range(3)])
    assert max(ms(changed(made, [Change("offload", "work")]))) >= 180


def test_another_size_of_a_pool_is_what_its_jobs_wait_for() -> None:
    made = workload([call(on_thread(), jobs=(job(30 * MS),)) for _ in range(4)], threads(1))
    assert ms(made) == [30, 60, 90, 120]
    assert ms(changed(made, [Change("pool", "threads", 2)])) == [30, 30, 60, 60]


def test_a_private_pool_takes_its_tool_out_of_the_shared_one() -> None:
    calls = [call(on_thread(), jobs=(job(30 * MS),), operation=name) for name in ("a", "a", "b", "b")]
    made = workload(calls, threads(2))
    assert ms(made) == [30, 30, 60, 60]
    assert ms(changed(made, [Change("private-pool", "a", 1)])) == [30, 60, 30, 30]


def test_a_narrow_lock_is_not_held_while_its_holder_sleeps() -> None:
    made = workload([call(holding(0, 30 * MS)) for _ in range(4)], LOCK)
    assert ms(made) == [30, 60, 90, 120]
    assert ms(changed(made, [Change("narrow", "asyncio.Lock")])) == [30, 30, 30, 30]


def test_gathered_awaits_take_as_long_as_the_longest() -> None:
    waits = (20, 30, 25)
    unit = (
        Step(DELAY, 0, MS),
        *(Step(DELAY, ns * MS, MS, about="http http://x:1 first-byte ") for ns in waits),
        Step(DELAY, 0, 0, ends=((ANSWER, 0),)),
    )
    made = workload([call(unit)])
    assert ms(made) == [79]
    assert 32 <= ms(changed(made, [Change("gather", "work")]))[0] <= 35


def test_gathered_work_is_the_same_work() -> None:
    unit = (
        Step(DELAY, 0, MS),
        *(Step(DELAY, 20 * MS, MS, about="sleep sleep  ") for _ in range(4)),
        Step(DELAY, 0, 2 * MS, ends=((ANSWER, 0),)),
    )
    made = workload([call(unit)])
    assert simulate(changed(made, [Change("gather", "work")])).loop_ns == simulate(made).loop_ns


def test_a_shared_client_is_neither_made_nor_connected_by_a_call() -> None:
    unit = (
        Step(DELAY, 0, 30 * MS),
        Step(DELAY, 10 * MS, 0, about="connect http://x:1 tcp "),
        Step(DELAY, 20 * MS, 0, ends=((ANSWER, 0),), about="http http://x:1 first-byte "),
    )
    made = workload([call(unit)], step_ns=MS // 2)
    assert ms(made) == [60]
    assert ms(changed(made, [Change("share-client", "work")])) == [20]


def test_a_client_that_is_not_made_leaves_no_garbage() -> None:
    """Of 100 ms that the call runs without the collector, 80 make the client, so of the collector 80 % go, too."""
    client = Step(DELAY, 0, 80 * MS)
    connect = Step(DELAY, MS, 0, about="connect http://example.com")
    work = Step(DELAY, 0, 70 * MS, ends=((ANSWER, 0),), gc_ns=50 * MS)
    made = workload([call((client, connect, work))], step_ns=0)
    assert ms(changed(made, [Change("share-client", "work")])) == [30]


def test_a_tool_that_is_sped_up_takes_less_everywhere() -> None:
    unit = (Step(DELAY, 0, 10 * MS, ends=((SUBMIT, 0),)), Step(JOB, 0, 0), Step(DELAY, 20 * MS, 0, ends=((ANSWER, 0),)))
    made = workload([call(unit, jobs=(job(30 * MS),))], threads(1))
    assert ms(made) == [60]
    assert ms(changed(made, [Change("speed-up", "work", 0.5)])) == [30]


def test_twice_the_rate_comes_twice_as_often_where_nobody_waits_for_answers() -> None:
    made = workload([call(runs(8 * MS), at=10 * MS * n) for n in range(20)])
    assert max(ms(made)) == 8
    faster = changed(made, [Change("rate", "", 2)])
    assert ms(faster)[-1] == 8 + 19 * 3


def test_twice_the_rate_is_twice_the_clients_where_each_waits_for_its_answer() -> None:
    calls = [call(runs(10 * MS), at=0, after=(n - 1,) if n else ()) for n in range(10)]
    made = workload(calls, is_closed=True)
    assert ms(made) == [10] * 10
    more = changed(made, [Change("rate", "", 2)])
    assert len(more.calls) == 20
    assert sorted(ms(more))[10] == 20


def test_changes_add_up() -> None:
    made = workload([call(blocking(40 * MS, 0)) for _ in range(4)])
    both = [Change("offload", "work"), Change("private-pool", "work", 2)]
    assert ms(changed(made, both)) == [40, 40, 80, 80]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (Change("offload", "wrk"), "no operation of the recording is called so. It has quick, work."),
        (Change("offload", "quick"), "no step of `quick` took 1 ms"),
        (Change("pool", "nope", 4), "no pool is called so. The recording has `threads`, `threads of b`."),
        (Change("pool", "read", 4), "no pool alone is called so"),
        (Change("narrow", "threads"), "no lock is called so. The recording has `asyncio.Lock made at server.py:7`."),
        (Change("private-pool", "quick", 4), "`quick` runs nothing on threads. --offload quick comes before."),
        (Change("gather", "quick"), "no call of `quick` awaits alike things"),
        (Change("share-client", "quick"), "no call of `quick` was seen to open a connection"),
    ],
)
def test_a_change_that_finds_nothing_says_what_there_is(change: Change, sentence: str) -> None:
    calls = [call(blocking(60 * MS, 0)), call(sleeps(MS), operation="quick"), call(holding(1, MS))]
    made = workload(calls, threads(1), LOCK, Resource("threads of b", "threads", 1))
    with pytest.raises(OptionError) as caught:
        changed(made, [change])
    assert sentence in str(caught.value)


def test_a_change_reads_as_it_is_given() -> None:
    given = [
        Change("pool", "httpx pool", 8),
        Change("speed-up", "a", 0.5),
        Change("rate", "", 2),
        Change("gather", "a"),
    ]
    assert list(map(str, given)) == ["--pool 'httpx pool=8'", "--speed-up a=50%", "--rate 2x", "--gather a"]


def test_what_a_place_gives_back_is_the_place_of_the_private_pool() -> None:
    unit = (
        Step(DELAY, 0, 0),
        Step(1, 0, 0, ends=((SUBMIT, 0),)),
        Step(JOB, 0, 0, begins=((RELEASE, 0),), ends=((ANSWER, 0),)),
    )
    work = job(10 * MS)._replace(claims=False)
    made = workload([call(unit, jobs=(work,)) for _ in range(4)], threads(1))
    assert ms(made) == [10, 20, 30, 40]
    assert ms(changed(made, [Change("private-pool", "work", 2)])) == [10, 10, 20, 20]


def test_the_answer_comes_after_the_last_of_gathered_awaits() -> None:
    sleeping = [Step(DELAY, ns * MS, 0, about="sleep ") for ns in (20, 30)]
    last = Step(DELAY, 20 * MS, 5 * MS, ends=((ANSWER, 0),), about="sleep ")
    made = workload([call((Step(DELAY, 0, MS), *sleeping, last))])
    assert ms(made) == [76]
    assert ms(changed(made, [Change("gather", "work")])) == [36]
