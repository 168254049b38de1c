"""Who held up whom, request by request, by the code that makes the report's table."""

from __future__ import annotations

from typing import Any

from mcp_probe.aggregate.blocking import Blame, Victim
from mcp_probe.aggregate.fold import Fold


class BlameRows:
    """Collects a row for each victim and blocker; feed ``fold`` frames as they come."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self.fold = Fold(on_blame=self._add)

    def _add(self, victim: Victim, found: Blame) -> None:
        for blocker, (lo_ns, hi_ns) in found.rows.items():
            self._rows.append(
                {
                    "victim": victim.operation,
                    "victim_request": victim.request,
                    "blocker": blocker,
                    "lo_ms": lo_ns / 1e6,
                    "hi_ms": hi_ns / 1e6,
                    "clipped": found.clipped,
                    "weight": victim.weight,
                }
            )

    def take(self) -> list[dict[str, Any]]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        return rows
