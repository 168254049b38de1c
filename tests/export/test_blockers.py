"""Who waited for whom, request by request, once the steps of that time are known."""

from __future__ import annotations

from mcp_probe.export.metrics import HOLD_NS, MAX_HELD, Blockers
from mcp_probe.model import LOOP_OPERATION
from tests.frames import MS, SECOND, make_loop_sample, make_request, make_step, make_wait

ADD = (("gen_ai.tool.name", "add"),)


def rows(blockers: Blockers, *, all_of_them: bool = False) -> list[dict[str, tuple[int, int]]]:
    return [blocked.found.rows for blocked in blockers.due(all_of_them=all_of_them)]


def test_a_request_is_held_until_the_steps_of_its_time_are_known() -> None:
    blockers = Blockers()
    blockers.add_request(make_request(1, waits=(make_wait(0, 120 * MS),), end_ns=121 * MS), ADD)
    assert rows(blockers) == []

    blockers.add_step(make_step(0, 120 * MS))
    blockers.add_sample(make_loop_sample(at_ns=121 * MS + 2 * HOLD_NS))
    assert rows(blockers) == [{"block": (120 * MS, 120 * MS)}]
    assert rows(blockers) == []


def test_at_the_end_everything_held_is_worked_out() -> None:
    blockers = Blockers()
    blockers.add_step(make_step(0, 80 * MS, request=0, operation=LOOP_OPERATION))
    blockers.add_request(make_request(1, waits=(make_wait(0, 80 * MS),), end_ns=81 * MS), ADD)
    assert rows(blockers, all_of_them=True) == [{LOOP_OPERATION: (80 * MS, 80 * MS)}]


def test_a_request_that_never_waited_is_not_held() -> None:
    blockers = Blockers()
    blockers.add_request(make_request(1, busy=MS), ADD)
    assert rows(blockers, all_of_them=True) == []


def test_what_is_only_possible_is_told_apart_from_what_is_certain() -> None:
    blockers = Blockers()
    blockers.add_step(make_step(0, 120 * MS))
    blockers.add_request(make_request(1, waits=(make_wait(100 * MS, 120 * MS, earliest_ns=0),), end_ns=121 * MS), ADD)
    assert rows(blockers, all_of_them=True) == [{"block": (20 * MS, 120 * MS)}]


def test_a_step_seen_while_it_ran_is_counted_once() -> None:
    blockers = Blockers()
    assert blockers.add_step(make_step(0, 50 * MS, running=True))
    assert blockers.add_step(make_step(0, 120 * MS))
    assert not blockers.add_step(make_step(0, 120 * MS))


def test_held_requests_are_bounded() -> None:
    blockers = Blockers()
    for n in range(MAX_HELD + 1):
        blockers.add_request(make_request(n + 1, waits=(make_wait(0, 2 * MS),), end_ns=SECOND), ADD)
    assert len(rows(blockers)) == MAX_HELD // 2
