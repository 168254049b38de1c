"""How a claim is graded."""

from __future__ import annotations

from mcp_probe.workloads.bench.shapes import Verdict


def graded(holds: bool, near: bool = False) -> Verdict:
    """``near``: the direction is right and the size is not."""
    return "holds" if holds else "holds in shape" if near else "does not hold"
