"""The end of the process: each session hands on what it has, and reports, before what it needs shuts down."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_probe.adapters.exits import EXIT_BUDGET_S, call_at_exit, forget_exit
from mcp_probe.capture.guard import Fail, Guard

if TYPE_CHECKING:
    from mcp_probe.model import Summary


class AtExit:
    """What one session does at the end of its process, once.

    Args:
        finish: hands on what there is; returns what is to be reported, if anything is.
        where: where the report goes, as in ``attach(report=…)``.
        fail: told of a fault.
    """

    def __init__(self, finish: Callable[[], Summary | None], where: str | None, fail: Fail) -> None:
        self._finish = finish
        self._where = where
        self._guard = Guard("report", fail)
        self._exiting = False

    def arm(self) -> None:
        """Be called at the end of this process; a process forked from it does not."""
        call_at_exit(self.run)

    def disarm(self) -> None:
        """Do nothing after all."""
        forget_exit(self.run)

    def come_first(self) -> None:
        """Be called before everything that has been registered by now: what registers last is called first."""
        if not self._exiting:
            atexit.unregister(self.run)
            atexit.register(self.run)

    def run(self) -> None:
        """The process ends. Never raises."""
        if self._exiting:
            return
        self._exiting = True
        summary = self._guard.call(self._finish)
        if summary is not None and self._where is not None:
            from mcp_probe.report.exit_report import report_at_exit

            report_at_exit(summary, self._where, EXIT_BUDGET_S)
