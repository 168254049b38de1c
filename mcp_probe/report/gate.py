"""A judgement in sentences, for stderr."""

from __future__ import annotations

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.gate import Judgement, place_of
from mcp_probe.model import Finding


def told(judgement: Judgement, *, is_compared: bool) -> list[str]:
    """Why it fails, and what changes nothing. ``is_compared``: there was a baseline."""
    sentences = list(judgement.remarks)
    sentences += [
        f"known from the baseline, so it does not fail: {finding.code} of {_of(finding)}" for finding in judgement.known
    ]
    sentences += [f"{problem} That counts as a failure (--fail-on)." for problem in judgement.problems]
    codes = sorted({finding.code for finding in judgement.failing})
    if codes:
        sentences.append(f"failing because of {', '.join(codes)} (--fail-on).")
    if is_compared:
        sentences += [f"not in the baseline: {finding.code} of {_of(finding)}" for finding in judgement.failing]
    return sentences


def _of(finding: Finding) -> str:
    place = phrasing.place_of(*place_of(finding))
    return f"{phrasing.object_of(finding.subject)}{f' at {place}' if place else ''}."
