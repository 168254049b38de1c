"""Steps are drained before their request is known; their lengths wait for it, and are never lost."""

from __future__ import annotations

from mcp_probe.export.metrics import MAX_WAITING, StepOwners
from tests.frames import MS, make_request, make_step

ADD = (("gen_ai.tool.name", "add"),)


def test_a_step_is_counted_for_its_requests_tool_once_the_request_comes() -> None:
    owners = StepOwners()
    assert list(owners.add_step(make_step(0, 3 * MS, request=1))) == []
    assert list(owners.add_step(make_step(5 * MS, 7 * MS, request=1))) == []

    assert list(owners.add_request(make_request(1), ADD)) == [(3 * MS, ADD), (2 * MS, ADD)]
    assert list(owners.rest()) == []


def test_a_step_of_no_request_is_counted_at_once() -> None:
    assert list(StepOwners().add_step(make_step(0, 3 * MS, request=0))) == [(3 * MS, ())]


def test_a_step_of_a_profiled_function_is_the_enclosing_requests() -> None:
    owners = StepOwners()
    list(owners.add_step(make_step(0, 3 * MS, request=2, within=(1,))))

    assert list(owners.add_request(make_request(2, kind="function", method="function"), ())) == []
    assert list(owners.add_request(make_request(1), ADD)) == [(3 * MS, ADD)]


def test_steps_whose_request_never_comes_are_counted_in_the_end() -> None:
    owners = StepOwners()
    list(owners.add_step(make_step(0, 3 * MS, request=1)))
    assert list(owners.rest()) == [(3 * MS, ())]


def test_waiting_steps_are_bounded_and_none_is_lost() -> None:
    owners = StepOwners()
    let_go = [found for n in range(MAX_WAITING + 10) for found in owners.add_step(make_step(0, n, request=n + 1))]
    assert let_go == [(n, ()) for n in range(10)]
    assert len(list(owners.rest())) == MAX_WAITING
