"""A loop that no hook fits. Nothing is patched, and its monitor says that it sees nothing.

A request is counted and has its instants (arrival, beginning and end of its handler, write). What it did on the loop
in between is unavailable, and so is the loop's own health.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mcp_probe.adapters.loop_hooks import LoopHooks, weakly
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.loop_monitor import NOTHING, LoopMonitor, StepSink
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest


class UnknownMonitor(LoopMonitor):
    """Tells when handlers begin. It never has a step, so it is never busy and never blocks anybody."""

    __slots__ = ()

    def __init__(self, sink: StepSink, loop: Any) -> None:
        super().__init__(sink, _name_of(loop), NOTHING, weakly(loop))

    def handler_began(self, raw: RawRequest) -> None:
        """The first that is seen of it on the loop."""
        raw.first_step_ns = now_ns()
        raw.seen = self.shows

    def enter(self, raw: RawRequest) -> object:
        """As handlers do that begin in a task of their own: a step that is not seen has no middle."""
        self.handler_began(raw)
        return CURRENT.set(raw)

    def leave(self, raw: RawRequest, token: Any) -> None:
        """Nothing was on the loop that could end."""
        with suppress(ValueError):  # a collection closes it, in the context of whoever collects
            CURRENT.reset(token)


class UnknownHooks(LoopHooks[UnknownMonitor]):
    """Takes any loop that asyncio runs. It is asked last."""

    hook = "steps"

    def fits(self, loop: Any) -> bool:
        """Whether it can say when it is over: the token of a run of trio's, whose hooks have failed, cannot."""
        return hasattr(loop, "is_running") and hasattr(loop, "is_closed")

    def begin(self, loop: Any) -> UnknownMonitor:
        why = f"no hooks for a {_name_of(loop)} loop here; only when handlers begin and end is seen"
        self._hub.missing(self.hook, why)
        return self._hub.add_monitor(lambda sink: UnknownMonitor(sink, loop))


def _name_of(loop: Any) -> str:
    return type(loop).__module__.partition(".")[0]
