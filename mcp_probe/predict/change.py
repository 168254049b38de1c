"""One change of a what-if, as it is given on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Literal

Kind = Literal["offload", "pool", "private-pool", "gather", "narrow", "share-client", "speed-up", "rate"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that would be other. ``value``: threads or places, a share of time saved, or a factor."""

    kind: Kind
    subject: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        """As it is given on the command line."""
        shown = {"speed-up": f"={self.value:.0%}", "rate": f"{self.value:g}x"}.get(
            self.kind, f"={self.value:g}" if self.kind in ("pool", "private-pool") else ""
        )
        return f"--{self.kind} {quote(f'{self.subject}{shown}')}"
