"""The probe of a server that mcp_probe could not attach to: all that a server asks of a probe works, and sees nothing.

Nothing but logging is imported here, and nothing of ours before it is asked for: any part of the package may be at
fault.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_probe.model import Finding, MemoryTier, Summary

logger = logging.getLogger("mcp_probe")


def pass_through(ctx: Any, call_next: Callable[[Any], Any]) -> Any:
    """Middleware that is nothing but the rest of the chain."""
    return call_next(ctx)


class Inert:
    """Passes everything through. Logs ``fault``, once, as it is made."""

    attached = False
    stuck: tuple[str, ...] = ()
    memory: MemoryTier = "off"

    def __init__(self, fault: Exception) -> None:
        self._fault = f"{type(fault).__name__}: {fault}"
        logger.warning(
            "mcp_probe: could not attach because of a fault of its own (%s). The server runs without it. "
            "Please report this.",
            self._fault,
            exc_info=fault,
        )

    @property
    def middleware(self) -> Callable[[Any, Callable[[Any], Any]], Any]:
        """The rest of the chain."""
        return pass_through

    def streams(self, read_stream: Any, write_stream: Any) -> tuple[Any, Any]:
        """The pair as it is."""
        return read_stream, write_stream

    def asgi(self, app: Any) -> Any:
        """``app`` itself."""
        return app

    def profile(self, function: Any) -> Any:
        """``function`` itself."""
        return function

    def snapshot(self) -> Summary:
        """A summary without requests; its notes say why."""
        from dataclasses import replace

        from mcp_probe.aggregate.fold import Fold

        summary = Fold().summary()
        return replace(summary, notes=(f"mcp_probe could not attach, so it saw nothing ({self._fault}).",))

    def findings(self) -> tuple[Finding, ...]:
        """None."""
        return ()

    def attach(self, server: Any) -> None:
        """Do nothing: it sees no server."""

    def serves(self, server: Any) -> bool:
        """False."""
        return False

    def detach(self) -> None:
        """Do nothing: everything has been put back."""

    def __repr__(self) -> str:
        return f"<Probe that could not attach: {self._fault}>"


def stand_in(name: str, fault: Exception) -> Any:
    """What stands for ``mcp_probe.attach`` or ``mcp_probe.Probe`` where ``fault`` kept their module from loading."""

    def attach(server: Any, **options: Any) -> Inert:
        """Log the fault, and leave ``server`` as it is."""
        return Inert(fault)

    class Probe(Inert):
        """Logs the fault, and sees nothing."""

        def __init__(self, **options: Any) -> None:
            super().__init__(fault)

    return attach if name == "attach" else Probe
