"""The hooks of this process, the sessions that use them, and what becomes of both in a forked child."""

from __future__ import annotations

import logging
import os
import threading
from functools import cache
from typing import Any, Protocol

from mcp_probe.adapters.all_hooks import Attachable, ProcessHooks
from mcp_probe.adapters.exits import call_before_threads_end
from mcp_probe.capture.hub import Hub
from mcp_probe.collector import Collector
from mcp_probe.options import Options
from mcp_probe.record.timeline import MAX_STEPS

logger = logging.getLogger("mcp_probe")


class Session(Attachable, Protocol):
    """An attached probe, as far as the process asks it."""

    options: Options

    def abandon(self) -> None:
        """This is a forked child: be detached, and write nothing of what the parent will write."""

    def succeed(self) -> None:
        """Make a successor in the forked child, if it needs one."""


class Process:
    """Hooks are installed for the first session, and gone with the last. Guarded by ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hub: Hub | None = None
        self.hooks: ProcessHooks | None = None
        self.collector: Collector | None = None
        self.sessions: list[Any] = []  # each a Session; who attached them knows more of them

    def enter(self, session: Session) -> ProcessHooks:
        """The hooks, for one more session."""
        with self.lock:
            if self.hooks is None:
                self.hub = Hub(round(session.options.slow_step_ms * 1e6))
                self.hub.awaits.short_ns = round(session.options.wait_ms * 1e6)
                self.hub.memory.want(session, session.options.memory)  # while no thread of ours exists
                self.hooks = ProcessHooks(self.hub)
                self.hooks.install()
                _arm()
            self.sessions.append(session)
            self.hooks.hub.memory.want(session, session.options.memory)
            self.hooks.hub.measuring.want(session, session.options.measures)
            self.hooks.hub.outbound.redact_with(session, session.options.redact)
            self._keep_for_timelines(self.hooks.hub)
            if session.options.awaits:
                self.hooks.follow_awaits()
            return self.hooks

    def collector_of(self, hub: Hub) -> Collector:
        """The collector of ``hub``, made for the first session."""
        with self.lock:
            if self.collector is None:
                self.collector = Collector(hub)
                hub.closing.append(self.collector.flush)
                hub.looking.append(self.collector.look_before_server_ends)
                hub.hand_over = self.collector.hand_over
            return self.collector

    def leave(self, session: Session) -> list[str]:
        """One session less; sentences for what the last one could not put back."""
        with self.lock:
            if session in self.sessions:
                self.sessions.remove(session)
                if self.hub is not None and self.sessions:
                    self.hub.memory.forget(session)
                    self.hub.measuring.forget(session)
                    self.hub.outbound.forget(session)
                    self._keep_for_timelines(self.hub)
            if self.sessions or self.hub is None:
                return []
            hooks, hub = self.hooks, self.hub
            self.hooks = self.hub = self.collector = None
            hub.requests.closed = True
            stuck = [*(hooks.restore() if hooks is not None else ()), *hub.measuring.close()]
            hub.close()
            hub.memory.close()
            return stuck

    def _keep_for_timelines(self, hub: Hub) -> None:
        """What only timelines need, as long as some session wants them."""
        wanted = any(session.options.full for session in self.sessions)
        hub.kept_marks = MAX_STEPS if wanted else 0
        hub.awaits.keep_holds(wanted)


PROCESS = Process()


@cache
def _arm() -> None:
    """Once: it cannot be undone, and costs nothing where no hunt is on."""

    def look() -> None:
        collector = PROCESS.collector
        if collector is not None:
            collector.look_before_threads_end()

    call_before_threads_end(look)


def _leave_child_alone() -> None:
    """After a fork, in the child: our threads do not exist there, and a lock of ours may be held for ever.

    The child removes the inherited hooks silently, since sinks and reports are its parent's. It may attach anew.
    """
    sessions, hooks, hub = PROCESS.sessions, PROCESS.hooks, PROCESS.hub
    PROCESS.__init__()  # type: ignore[misc]
    try:
        for session in sessions:
            session.abandon()
        if hooks is not None and hub is not None:
            hub.requests.closed = True
            hooks.restore()
            hub.abandon()
            hub.measuring.abandon()
            hub.memory.abandon()
        for session in sessions:
            session.succeed()
    except Exception as exc:
        logger.warning("mcp_probe: left a forked child half attached", exc_info=exc)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_child_alone)
