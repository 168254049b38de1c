"""The simulation against what queueing theory says, and against small windows that can be worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from math import factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.predict.simulate import SWITCH_NS, simulate
from mcp_probe.predict.workload import (
    ANSWER,
    DELAY,
    JOB,
    SIGNAL,
    SIGNALLED,
    SPAWN,
    SUBMIT,
    TAKEN,
    Call,
    Resource,
    Step,
    Way,
)
from tests.predict.made import MS, call, durations, holding, job, on_thread, runs, sleeps, threads, workload

# --- formulas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_loop_with_equal_steps_and_random_arrivals_waits_as_an_m_d_1_queue(load: float) -> None:
    """Source: Pollaczek-Khinchine, mean wait = rho * D / (2 * (1 - rho))."""
    chance, service = random.Random(7), MS
    at, calls = 0.0, []
    for _ in range(10_000):
        at += chance.expovariate(load / service)
        calls.append(call(runs(service), at=int(at)))
    waits = [took - service for took in durations(workload(calls))]
    assert sum(waits) / len(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.08)


@pytest.mark.parametrize(("places", "load"), [(1, 0.5), (4, 0.8)])
def test_a_pool_with_random_jobs_and_arrivals_waits_as_an_m_m_c_queue(places: int, load: float) -> None:
    """Source: Erlang's C formula."""
    chance, service = random.Random(11), MS
    offered = load * places
    at, calls = 0.0, []
    for _ in range(10_000):
        at += chance.expovariate(offered / service)
        calls.append(call(on_thread(), at=int(at), jobs=(job(int(chance.expovariate(1 / service))),)))
    outcome = simulate(workload(calls, threads(places)))
    tail = offered**places / factorial(places) / (1 - load)
    must_wait = tail / (sum(offered**n / factorial(n) for n in range(places)) + tail)
    expected = must_wait * service / (places - offered)
    assert outcome.usages[0].waited_ns / len(calls) == pytest.approx(expected, rel=0.1)


def test_clients_that_wait_for_answers_get_the_throughput_of_mean_value_analysis() -> None:
    """One queue and a time to think. Source: Reiser and Lavenberg, Mean-Value Analysis (1980)."""
    chance, clients, service, think, rounds = random.Random(3), 6, 2 * MS, 8 * MS, 1_500
    calls: list[Call] = []
    for turn in range(rounds):
        for client in range(clients):
            after = (len(calls) - clients,) if turn else ()
            pause = int(chance.expovariate(1 / think))
            calls.append(call(runs(int(chance.expovariate(1 / service))), at=pause if turn else client, after=after))
    outcome = simulate(workload(calls))
    queue = throughput = 0.0
    for customers in range(1, clients + 1):
        response = service * (1 + queue)
        throughput = customers / (response + think)
        queue = throughput * response
    assert len(calls) / outcome.span_ns == pytest.approx(throughput, rel=0.03)


# --- by hand ------------------------------------------------------------------------------------------


def test_six_jobs_of_100_ms_on_two_threads_wait_0_0_100_100_200_200() -> None:
    calls = [call(on_thread(), jobs=(job(100 * MS),)) for _ in range(6)]
    took = durations(workload(calls, threads(2)))
    assert [ns // MS - 100 for ns in took] == [0, 0, 100, 100, 200, 200]


def test_a_semaphore_of_two_lets_two_in_at_once() -> None:
    calls = [call(holding(0, 30 * MS)) for _ in range(5)]
    made = workload(calls, Resource("Semaphore", "places", 2))
    assert [ns // MS for ns in durations(made)] == [30, 30, 60, 60, 90]


def test_ten_calls_at_a_lock_that_each_holds_for_50_ms_go_in_turn() -> None:
    calls = [call(holding(0, 50 * MS)) for _ in range(10)]
    made = workload(calls, Resource("Lock", "lock", 1))
    assert [ns // MS for ns in durations(made)] == [50 * turn for turn in range(1, 11)]


def test_sleeping_calls_do_not_wait_for_each_other() -> None:
    assert durations(workload([call(sleeps(20 * MS)) for _ in range(50)])) == [20 * MS] * 50


def test_a_step_waits_for_all_steps_that_were_ready_before_it() -> None:
    calls = [call(runs(120 * MS)), call(runs(80 * MS)), call(runs(0), at=1)]
    assert [ns // MS for ns in durations(workload(calls))] == [120, 200, 199]


def test_a_thread_is_taken_while_the_loop_is_blocked_and_its_result_waits() -> None:
    blocked = call(runs(100 * MS), at=MS)
    quick = call(on_thread(), jobs=(job(2 * MS),))
    took = durations(workload([quick, blocked], threads(1)))
    assert took[0] == 101 * MS


def test_tasks_of_a_request_run_side_by_side_and_are_joined() -> None:
    child = (Step(DELAY, 0, 0), Step(DELAY, 10 * MS, 0, ends=((SIGNAL, 1),)))
    other = (Step(DELAY, 0, 0), Step(DELAY, 30 * MS, 0, ends=((SIGNAL, 2),)))
    main = (
        Step(DELAY, 0, 0, ends=((SPAWN, 1), (SPAWN, 2))),
        Step(SIGNALLED, 2, 0),
        Step(SIGNALLED, 1, MS, ends=((ANSWER, 0),)),
    )
    assert durations(workload([call(main, child, other)])) == [31 * MS]


def test_background_work_is_load_for_requests() -> None:
    made = workload([call(runs(MS), at=5 * MS)], background=((0, 20 * MS),))
    assert durations(made) == [16 * MS]


def test_a_client_sends_again_once_all_that_it_waits_for_is_answered() -> None:
    calls = [call(sleeps(10 * MS)), call(sleeps(30 * MS)), call(sleeps(MS), at=5 * MS, after=(0, 1))]
    outcome = simulate(workload(calls))
    assert outcome.times[2] == (35 * MS, 36 * MS)


def test_what_a_socket_woke_has_its_turn_after_the_poll_that_found_it() -> None:
    """While a step of 10 ms runs, the socket of another call is ready: that call's callback is found once the step has
    ended, behind the next step of the first call, and its task has the turn after that."""
    waits = (Step(DELAY, 0, 0), Step(DELAY, 5 * MS, 4 * MS, ends=((ANSWER, 0),)))
    steps = (Step(DELAY, 0, 10 * MS), Step(DELAY, 0, 2 * MS), Step(DELAY, 0, 0, ends=((ANSWER, 0),)))
    outcome = simulate(workload([call(waits), call(steps, at=MS)]))
    assert outcome.times == ((0, 17 * MS), (MS, 13 * MS))


# --- the GIL ------------------------------------------------------------------------------------------


def test_two_threads_that_compute_take_as_long_as_both_together() -> None:
    calls = [call(on_thread(), jobs=(job(cpu_ns=100 * MS),)) for _ in range(2)]
    took = durations(workload(calls, threads(2)))
    assert max(took) == 200 * MS
    assert min(took) >= 190 * MS


def test_the_loop_gets_the_gil_from_a_computing_thread_after_one_switch_interval() -> None:
    computes = call(on_thread(), jobs=(job(cpu_ns=100 * MS),))
    quick = call(runs(MS), at=20 * MS)
    took = durations(workload([computes, quick], threads(2)))
    assert took[1] == SWITCH_NS + MS


def test_a_write_to_a_socket_loses_the_gil_to_a_thread_that_computes() -> None:
    computes = call(on_thread(), jobs=(job(cpu_ns=100 * MS),))
    way = Way(in_run_ns=3, out_run_ns=5)
    quick = call(runs(MS), at=20 * MS, way=way)
    alone = durations(workload([quick, quick]))[0]
    # It takes the GIL as it wakes, at its first poll and every other, and after the head and the body of the response.
    took = durations(workload([computes, quick], threads(2)))[1]
    assert (took - alone) // SWITCH_NS in (6, 7)


def test_threads_that_sleep_take_nothing_of_the_gil() -> None:
    sleeping = call(on_thread(), jobs=(job(100 * MS),))
    assert durations(workload([sleeping, call(runs(MS), at=20 * MS)], threads(2)))[1] == MS


def test_a_step_that_sleeps_lets_a_thread_compute_meanwhile() -> None:
    computes = call(on_thread(), jobs=(job(cpu_ns=60 * MS),))
    asleep = (Step(DELAY, 0, 100 * MS, ends=((ANSWER, 0),), cpu_ns=20 * MS, idle_ns=80 * MS, stops=1),)
    took = max(durations(workload([call(asleep, at=1), computes], threads(2))))
    assert took == 120 * MS + 1, "it shares the GIL while it computes, and then sleeps"
    held = (asleep[0]._replace(idle_ns=0),)
    assert max(durations(workload([call(held, at=1), computes], threads(2)))) == 160 * MS


def test_the_loop_gets_the_gil_each_time_a_computing_thread_stops() -> None:
    quick = call(runs(MS), at=20 * MS)
    stops = job(outside_ns=100 * MS, cpu_ns=100 * MS)._replace(parts=100)
    took = durations(workload([call(on_thread(), jobs=(stops,)), quick], threads(2)))
    assert took[1] <= 2 * MS, "its turn comes within one part, not after a switch interval"
    assert took[0] == 200 * MS, "and takes a part's sleep, so the thread loses nothing"


# --- http ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("session", "ends"), [(0, [12] * 12), (1, [5, 7, 9, 11, *[12] * 8])])
def test_a_session_takes_one_message_a_turn_and_sends_one_answer_every_second_turn(
    session: int, ends: list[int]
) -> None:
    """Twelve that came together: each handler has the turn after the one before, and an answer's way is five turns.

    Those of sessions of their own all begin in one turn, and no answer has its next turn before that is over.
    """
    made = call(runs(20 * MS), way=Way(in_run_ns=3, out_run_ns=5))
    took = durations(workload([replace(made, session=session)] * 12))
    assert [round(ns / (20 * MS), 2) for ns in took] == ends


def test_what_the_loop_does_after_an_answer_keeps_only_others_waiting() -> None:
    made = call(runs(20 * MS), way=Way(in_run_ns=3, out_run_ns=5, rest_run_ns=5 * MS))
    later = replace(made, sent_ns=20 * MS + 10)
    assert [ns // MS for ns in durations(workload([made, later]))] == [20, 25]


# --- stdio --------------------------------------------------------------------------------------------


def test_messages_of_one_pipe_are_read_one_after_the_other() -> None:
    way = Way(in_ns=MS, in_run_ns=MS)
    outcome = simulate(workload([call(runs(0), at=at, way=way) for at in (0, 1, 1)], transport="one by one"))
    # The second and the third are read from the pipe together, once the reader asks again: two of five turns later.
    again = [MS + 2 * MS // 5, 2 * (MS + 2 * MS // 5)]
    assert outcome.times == ((0, 2 * MS), (1, again[0] + 2 * MS), (1, again[1] + 2 * MS))


def test_who_is_on_the_loop_goes_on_while_a_line_that_came_later_is_handed_to_its_handler() -> None:
    """Each step of the first has its turn between two of the way of the second, which then blocks the loop."""
    way = Way(in_run_ns=5)
    steps = call(tuple(Step(DELAY, 0, MS, ends=((ANSWER, 0),) if n == 3 else ()) for n in range(4)), way=way)
    took = durations(workload([steps, call(runs(50 * MS), way=way)], transport="one by one"))
    assert 54 * MS <= took[1] < 55 * MS


def test_messages_that_were_sent_at_once_come_with_one_read() -> None:
    """A reader that waits has all of them, so the second and the third arrived before the first held the loop."""
    outcome = simulate(workload([call(runs(80 * MS)) for _ in range(3)], transport="one by one"))
    # Its writer goes on behind the step of the third, so the second answer leaves with the last.
    assert outcome.times == ((0, 80 * MS), (0, 240 * MS), (0, 240 * MS))


def test_answers_leave_one_after_the_other_and_tell_their_handlers() -> None:
    way = Way(out_ns=10 * MS)
    unit = (Step(DELAY, 0, 0, ends=((ANSWER, 0),)), Step(SIGNALLED, TAKEN, 0))
    made = workload([call(unit, way=way) for _ in range(3)], transport="one by one")
    assert [ns // MS for ns in durations(made)] == [10, 20, 30]


def test_a_pool_full_of_tools_starves_the_reader_that_needs_a_thread_of_it() -> None:
    tools = [call(on_thread(), jobs=(job(100 * MS),)) for _ in range(3)]
    ping = call(runs(0), at=10 * MS, operation="ping")
    pools = Resource("default", "threads", 3)
    made = workload([*tools, ping], pools, transport="one by one", transport_pool=0)
    outcome = simulate(made)
    ends = [times[1] for times in outcome.times if times is not None]
    # The reader holds a thread of the three while it waits for a line. The third tool and the next read want one.
    assert ends[3] >= 100 * MS
    roomy = workload([*tools, ping], Resource("default", "threads", 5), transport="one by one", transport_pool=0)
    assert durations(roomy)[3] < MS


# --- whatever the window is ---------------------------------------------------------------------------

_NS = st.integers(0, 20 * MS)


@st.composite
def windows(draw: st.DrawFn) -> object:
    calls = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["runs", "sleeps", "thread", "lock"]))
        at, ns = draw(_NS), draw(_NS)
        after = (draw(st.integers(0, number - 1)),) if number and draw(st.booleans()) else ()
        if kind == "runs":
            calls.append(call(runs(ns), at=at, after=after))
        elif kind == "sleeps":
            calls.append(call(sleeps(ns), at=at, after=after))
        elif kind == "lock":
            calls.append(call(holding(1, ns), at=at, after=after))
        else:
            calls.append(call(on_thread(), at=at, after=after, jobs=(job(ns, draw(st.sampled_from([0, ns]))),)))
    limits = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    transport = draw(st.sampled_from(["one by one", "side by side"]))
    return workload(calls, threads(limits[0]), Resource("lock", "places", limits[1]), transport=transport)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_work_is_conserved_and_every_call_ends(made: object) -> None:
    outcome = simulate(made)  # type: ignore[arg-type]
    calls = made.calls  # type: ignore[attr-defined]
    assert outcome.loop_ns == sum(step.run_ns for one in calls for unit in one.units for step in unit)
    assert outcome.usages[0].used_ns >= sum(work.outside_ns + work.cpu_ns for one in calls for work in one.jobs)
    assert all(times is not None and times[0] <= times[1] for times in outcome.times)


@settings(max_examples=60, deadline=None)
@given(windows())
def test_nobody_waits_for_a_place_unless_all_are_taken(made: object) -> None:
    outcome = simulate(made)  # type: ignore[arg-type]
    for usage in outcome.usages:
        assert usage.full_ns > 0 or usage.waited_ns == 0
        assert usage.used_ns <= usage.limit * max(outcome.span_ns, *(t[1] for t in outcome.times if t is not None))


@settings(max_examples=30, deadline=None)
@given(windows())
def test_the_same_window_gives_the_same_outcome(made: object) -> None:
    assert simulate(made) == simulate(made)  # type: ignore[arg-type]


def test_a_job_that_nobody_awaits_does_not_keep_its_call() -> None:
    unit = (Step(DELAY, 0, MS, ends=((SUBMIT, 0), (ANSWER, 0))),)
    assert durations(workload([call(unit, jobs=(job(50 * MS),))], threads(1))) == [MS]


def test_a_place_is_given_back_as_the_task_goes_on_where_a_limiter_is_meant() -> None:
    unit = (
        Step(DELAY, 0, 0),
        Step(1, 0, 0, ends=((SUBMIT, 0),)),
        Step(JOB, 0, 0, begins=((2, 0),), ends=((ANSWER, 0),)),
    )
    work = job(10 * MS)._replace(claims=False)
    blocking = call(runs(50 * MS), at=MS)
    first, second = call(unit, jobs=(work,)), call(unit, at=2, jobs=(work,))
    took = durations(workload([first, blocking, second], threads(1)))
    assert took[0] == 51 * MS  # its thread was done at 10 ms; the loop, at 51 ms
    assert took[2] == 61 * MS - 2


def test_threads_of_the_transport_need_the_gil_too() -> None:
    computes = call(on_thread(), jobs=(job(cpu_ns=200 * MS),))
    ping = call(runs(0), at=20 * MS, way=Way(in_ns=MS))
    took = durations(workload([computes, ping], threads(2), transport="one by one"))
    assert 4 * SWITCH_NS <= took[1] <= 5 * SWITCH_NS + 2 * MS  # to read, the step, to write, to flush
