"""How a claim is graded."""

from __future__ import annotations

from mcp_probe.workloads.bench.shapes import Verdict

OTHERS = "Others used the machine meanwhile."


def graded(holds: bool, near: bool = False, *, contended: bool = False) -> Verdict:
    """``near``: the direction is right and the size is not. ``contended``: what others' work can have spoilt refutes
    nothing; say :data:`OTHERS` as the reason then.
    """
    failed: Verdict = "cannot be tested here" if contended else "does not hold"
    return "holds" if holds else "holds in shape" if near else failed
