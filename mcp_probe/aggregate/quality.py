"""How exact a number made of several numbers is: as exact as its worst part."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.model import OperationSummary, Quality, Tag

ORDER: tuple[Tag, ...] = ("exact", "bounded", "lower", "upper", "estimate", "unavailable")
"""Tags from best to worst."""

_RANK = {tag: rank for rank, tag in enumerate(ORDER)}


def worst(tags: Iterable[Tag]) -> Tag:
    """The worst of ``tags``; ``exact`` where there are none."""
    return max(tags, key=_RANK.__getitem__, default="exact")


def total_quality(operation: OperationSummary, name: str) -> Quality:
    """How exact one percentile of ``total_ms`` is: ``p50``, ``p95``, ``p99`` or ``max``."""
    return operation.quality.get(f"total_ms_{name}", _EXACT)


_EXACT = Quality("exact")
