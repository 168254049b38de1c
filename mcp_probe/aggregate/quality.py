"""How exact a number made of several numbers is: as its worst part."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.model import Tag

ORDER: tuple[Tag, ...] = ("exact", "bounded", "lower", "upper", "estimate", "unavailable")
"""Tags from best to worst."""

_RANK = {tag: rank for rank, tag in enumerate(ORDER)}


def worst(tags: Iterable[Tag]) -> Tag:
    """The worst of ``tags``; ``exact`` where there are none."""
    return max(tags, key=_RANK.__getitem__, default="exact")
