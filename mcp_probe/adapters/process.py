"""All hooks of the process: installed for the first attached server, gone with the last."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from mcp_probe.adapters import mcp1, mcp2
from mcp_probe.adapters.asgi import Gate, ProbedApp
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.patching import Patches
from mcp_probe.adapters.stdio import StdioHooks
from mcp_probe.adapters.tools import functions_of_tools
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import Tracing


class Attachable(Protocol):
    """What a server's hooks need of the session they report to."""

    transport: str

    def finish(self, raw: Any) -> None: ...


class Hooks(Protocol):
    """Hooks on one server."""

    def install(self, server: Any) -> None: ...

    def trace(self, tracing: Tracing) -> None: ...

    def restore(self) -> list[str]: ...


class ProcessHooks:
    """Everything that is patched outside a single server."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.loops = Loops(hub)
        self.gate = Gate(hub, self.loops)
        self.stdio = StdioHooks(hub, self.loops)
        self.http = mcp2.HttpHooks(hub, self.gate)
        self._imports = ImportWatch()
        self._patches = Patches()

    def install(self) -> None:
        """Patch what is there, and watch for what is not imported yet."""
        self.loops.install()
        self.hub.watch_gc()
        self.hub.functions_of_tools = functions_of_tools
        self._imports.when_imported("mcp.server.stdio", self._guarded("stdio transport", self.stdio.install))
        self._imports.when_imported("mcp.server.streamable_http_manager", self._guarded("http transport", self._http))

    def restore(self) -> list[str]:
        """Undo everything; sentences for what could not be put back."""
        self._imports.close()
        self.gate.shut()
        self.hub.unwatch_gc()
        return [
            *self._patches.restore(),
            *self.http.restore(),
            *self.stdio.restore(),
            *self.loops.restore(),
        ]

    def every_server(self, attach: Callable[[Any], None]) -> None:
        """Call ``attach(lowlevel_server)`` for each MCP server that is created from now on."""

        def patch(module: Any) -> None:
            server_class = module.Server
            original = vars(server_class)["__init__"]
            hub = self.hub

            def __init__(server: Any, *args: Any, **kwargs: Any) -> None:
                original(server, *args, **kwargs)
                try:
                    attach(server)
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    hub.fail("attach", exc)

            __init__.__wrapped__ = original  # type: ignore[attr-defined]
            self._patches.replace(server_class, "__init__", __init__)

        self._imports.when_imported("mcp.server.lowlevel.server", self._guarded("attach", patch))

    def hooks_for(self, server: Any, session: Attachable) -> tuple[Any, Hooks] | None:
        """(low-level server, its hooks, not yet installed), or ``None`` where no adapter knows ``server``."""
        modern = mcp2.lowlevel_of(server)
        if modern is not None:
            return modern, mcp2.ServerHooks(self.hub, self.loops, self.gate, session)
        legacy = mcp1.lowlevel_of(server)
        if legacy is not None:
            return legacy, mcp1.HandlerHooks(self.hub, self.loops, session)
        return None

    def wrap_asgi(self, app: Any) -> ProbedApp:
        """An ASGI app whose exchanges are followed."""
        return ProbedApp(app, self.gate)

    def _http(self, manager_module: Any) -> None:
        self.http.install(sys.modules["mcp.server.streamable_http"], manager_module)

    def _guarded(self, hook: str, install: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(module: Any) -> None:
            try:
                install(module)
            except Exception as exc:  # noqa: BLE001 - an unknown SDK must not stop the server
                self.hub.fail(hook, exc)

        return run
