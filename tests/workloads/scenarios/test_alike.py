"""Claims that nothing differs: noise may not make them hold."""

from __future__ import annotations

import pytest

from mcp_probe.workloads.bench.shapes import Verdict
from mcp_probe.workloads.scenarios.counted_calls import alike


@pytest.mark.parametrize(
    ("ratio", "floor", "contended", "verdict"),
    [
        (0.5, 1.02, False, "holds"),
        (1.1, 1.02, False, "holds"),
        (1.2, 1.02, False, "holds in shape"),
        (1.3, 1.02, False, "does not hold"),
        (1.0, 1.3, False, "cannot be tested here"),
        (1.0, None, False, "cannot be tested here"),
        (1.0, 1.02, True, "cannot be tested here"),
        (3.0, 1.02, True, "cannot be tested here"),
    ],
)
def test_no_difference_is_found_only_where_one_would_show(
    ratio: float, floor: float | None, contended: bool, verdict: Verdict
) -> None:
    assert alike(ratio, 1.1, 1.25, floor=floor, contended=contended) == verdict
