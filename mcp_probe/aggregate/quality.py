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


def quality_of(operation: OperationSummary, name: str) -> Quality:
    """How exact the number ``name`` of ``operation`` is; exact where nothing is said of it."""
    return operation.quality.get(name, _EXACT)


def tag_of(operation: OperationSummary, *names: str) -> Tag:
    """How exact a figure is that is made of these numbers of ``operation``."""
    return worst(quality_of(operation, name).tag for name in names)


def total_quality(operation: OperationSummary, name: str) -> Quality:
    """How exact one percentile of ``total_ms`` is: ``p50``, ``p95``, ``p99`` or ``max``."""
    return quality_of(operation, f"total_ms_{name}")


_EXACT = Quality("exact")
