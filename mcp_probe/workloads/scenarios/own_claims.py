"""Claims that no document makes, in the two kinds there are: counts that must agree, and a figure that is judged."""

from __future__ import annotations

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Asked, Claim, Measured
from mcp_probe.workloads.bench.statistics import counted


def exactly(
    bench: Bench, claim: str, sentence: str, *, fine: bool, said: str, how: str, why: str, documented: str = ""
) -> None:
    """Counts that others' work cannot spoil: whether all are as ``how`` says."""
    asked = Asked("exact", (0.0,), "not", "differences")
    bench.claim(Claim(claim, sentence, documented, (asked,), how), counted(0.0 if fine else 1.0), said=said, why=why)


def judged(
    bench: Bench,
    claim: str,
    sentence: str,
    asked: Asked,
    found: Measured,
    *,
    said: str,
    how: str,
    why: str,
    documented: str = "",
) -> None:
    """One figure; ``how`` says of what."""
    bench.claim(Claim(claim, sentence, documented, (asked,), how), found, said=said, why=why)
