"""What ``opentelemetry-instrument python server.py`` loads: a probe on each MCP server that the program creates.

Spans and metrics go through the providers that ``opentelemetry-instrument`` has set up; options come from
``MCP_PROBE_*``. ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=mcp_probe`` leaves it out.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

# Its file asks type checkers to look away.
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from mcp_probe.adapters.imports import ImportWatch

if TYPE_CHECKING:
    from mcp_probe.session import AutomaticProbe

logger = logging.getLogger("mcp_probe")


class ProbeInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Attaches when the program imports ``mcp``; most programs below ``opentelemetry-instrument`` never do.

    A fault of ours ends in a line of the log: raising here would leave the program without any instrumentation.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """None that could be in conflict: what is not there is never hooked."""
        return ()

    def _instrument(self, **options: Any) -> None:
        self._probe: AutomaticProbe | None = None
        self._imports = ImportWatch()
        if os.environ.get("MCP_PROBE_RUN") and "mcp_probe.launch.child" in sys.modules:
            return  # `mcp-probe run` attaches, and uses the same providers
        known = {key: value for key, value in options.items() if key != "skip_dep_check"}
        self._imports.when_imported("mcp", lambda _: self._attach(known))

    def _attach(self, options: dict[str, Any]) -> None:
        try:
            from mcp_probe.session import AutomaticProbe

            self._probe = AutomaticProbe(**options)
        except Exception as exc:
            logger.warning("mcp_probe: servers of this process are not instrumented", exc_info=exc)

    def _uninstrument(self, **unused: Any) -> None:
        self._imports.close()
        if self._probe is not None:
            self._probe.detach()
            self._probe = None
