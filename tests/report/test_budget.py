from __future__ import annotations

from mcp_probe.model import BUDGET_PARTS, Quality
from mcp_probe.report.budget import PARTS, slices_of, total_ms, whole_ms
from tests.report.summaries import make_budget, make_operation


def test_parts_cover_the_budget_once_each_in_its_order() -> None:
    assert sorted(name for part in PARTS for name in part.fields) == sorted(BUDGET_PARTS)
    assert len({part.letter for part in PARTS}) == len({part.role for part in PARTS}) == len(PARTS)


def test_whole_and_total_leave_out_what_is_unknown() -> None:
    operation = make_operation("x", 10, 1.0, 1.0, 1.0, make_budget(busy=3.0, awaiting=4.0, write_wait=None))
    assert whole_ms(slices_of(operation)) == 7.0
    assert total_ms(operation) == 70.0


def test_an_operation_without_any_part_is_ranked_by_its_median() -> None:
    operation = make_operation("x", 10, 5.0, 9.0, 9.0, make_budget(**dict.fromkeys(BUDGET_PARTS)))
    assert total_ms(operation) == 50.0


def test_a_sum_takes_the_worst_tag_and_adds_up_the_bounds() -> None:
    operation = make_operation(
        "x",
        1,
        1.0,
        1.0,
        1.0,
        make_budget(queue_transport=5.0, queue_dispatch=2.0, write_wait=1.0, write_flush=1.0),
        quality={
            "queue_transport": Quality("bounded", 4.0, 9.0),
            "write_wait": Quality("bounded", 0.5, 2.0),
            "write_flush": Quality("lower"),
        },
    )
    pieces = {piece.part.name: piece for piece in slices_of(operation)}
    assert pieces["queue"].ms == 7.0
    assert pieces["queue"].quality == Quality("bounded", 6.0, 11.0)
    assert pieces["write"].quality == Quality("lower", None, None)
