"""All hooks of the process: installed for the first attached server, gone with the last."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from mcp_probe.adapters import mcp1, mcp2
from mcp_probe.adapters.asgi import AsgiHooks, ProbedApp
from mcp_probe.adapters.exits import SignalHook
from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.http_servers import HttpServerHooks
from mcp_probe.adapters.http_transports import HttpHooks
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.in_process import InProcessHooks
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.probe_resources import HOOK as RESOURCES
from mcp_probe.adapters.probe_resources import cannot_add
from mcp_probe.adapters.schema_lookup import SchemaLookupHook
from mcp_probe.adapters.stdio import StdioHooks
from mcp_probe.adapters.tools import functions_of_tools
from mcp_probe.adapters.waits.aiohttp import AiohttpHooks
from mcp_probe.adapters.waits.aiosqlite import AiosqliteHooks
from mcp_probe.adapters.waits.asyncpg import AsyncpgHooks
from mcp_probe.adapters.waits.httpcore import HttpcoreHooks
from mcp_probe.adapters.waits.locks import LockHooks
from mcp_probe.adapters.waits.psycopg import PsycopgHooks
from mcp_probe.adapters.waits.queues import QueueHooks
from mcp_probe.adapters.waits.redis import RedisHooks
from mcp_probe.adapters.waits.sqlalchemy import SqlAlchemyHooks
from mcp_probe.adapters.waits.subprocesses import SubprocessHooks
from mcp_probe.adapters.waits.urllib3 import Urllib3Hooks
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import Tracing


class Attachable(Protocol):
    """What a server's hooks need of the session they report to."""

    attached: bool

    @property
    def tell(self) -> Callable[[str], str] | None:
        """Makes the text of a resource; ``None``: nobody asked for resources of the probe."""

    def finish(self, raw: Any) -> None: ...

    def note_server(self, name: str) -> None: ...


class Hooks(Protocol):
    """Hooks on one server."""

    def install(self, server: Any) -> None: ...

    def trace(self, tracing: Tracing) -> None: ...

    def restore(self) -> list[str]: ...


class WaitHooks(Protocol):
    """Hooks on what one library's callers wait for."""

    def install(self, imports: ImportWatch) -> None: ...

    def restore(self) -> list[str]: ...


class ProcessHooks:
    """Everything that is patched outside a single server."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.loops = Loops(hub)
        self.asgi = AsgiHooks(hub, self.loops)
        self.stdio = StdioHooks(hub, self.loops)
        self.http = HttpHooks(hub, self.asgi)
        self.sessions = mcp1.SessionHooks(hub)
        self._http_servers = HttpServerHooks(hub, self.loops)
        self._schemas = SchemaLookupHook(hub)
        self.in_process = InProcessHooks(hub)
        self._waits: tuple[WaitHooks, ...] = (
            LockHooks(hub, hub.awaits),
            HttpcoreHooks(hub),
            AiohttpHooks(hub),
            Urllib3Hooks(hub),
            SubprocessHooks(hub),
            SqlAlchemyHooks(hub),
            AsyncpgHooks(hub),
            PsycopgHooks(hub),
            RedisHooks(hub),
            AiosqliteHooks(hub),
        )
        self._queues = QueueHooks(hub)
        self._attach = Hook(hub, "attach")
        self._signals = SignalHook(hub)
        self._imports = ImportWatch()

    def install(self) -> None:
        """Patch what is there, and watch for what is not imported yet."""
        self.loops.install()
        self._signals.install()
        self.hub.watch_gc()
        self.hub.functions_of_tools = functions_of_tools
        self._http_servers.install(self._imports)
        self._queues.install(self._imports)
        schemas = self._schemas.guard.guarded(self._schemas.install)
        self._imports.when_imported("mcp.server._streamable_http_modern", schemas)
        self._imports.when_imported("mcp.server.stdio", self.stdio.guard.guarded(self.stdio.install))
        direct = self.in_process.guard.guarded(self.in_process.install)
        self._imports.when_imported("mcp.shared.direct_dispatcher", direct)
        self._imports.when_imported("mcp.server.streamable_http_manager", self.asgi.guard.guarded(self._http))
        self._imports.when_imported("mcp.server.session", self.sessions.guard.guarded(self.sessions.install))
        self._imports.when_imported("mcp.server.sse", self.asgi.guard.guarded(self.http.install_sse))

    def follow_awaits(self) -> None:
        """Say from now on what requests wait for. Idempotent."""
        if not self.hub.awaits.active:
            self.hub.follow_awaits()
            for waits in self._waits:
                waits.install(self._imports)

    def restore(self) -> list[str]:
        """Undo everything; sentences for what could not be put back."""
        self._imports.close()
        self.hub.unwatch_gc()
        return [
            *self._attach.restore(),
            *self._signals.restore(),
            *self._schemas.restore(),
            *(stuck for waits in self._waits for stuck in waits.restore()),
            *self._queues.restore(),
            *self._http_servers.restore(),
            *self.http.restore(),
            *self.sessions.restore(),
            *self.in_process.restore(),
            *self.stdio.restore(),
            *self.loops.restore(),
        ]

    def every_server(self, attach: Callable[[Any], None]) -> None:
        """Call ``attach(lowlevel_server)`` for each MCP server that is created from now on."""

        guard = Guard("attach", self.hub.fail)  # a server that cannot be attached does not switch the hook off

        def made(args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
            if error is None:
                guard.call(attach, args[0])

        def patch(module: Any) -> None:
            self._attach.wrap(module.Server, "__init__", after=made)

        self._imports.when_imported("mcp.server.lowlevel.server", self._attach.guarded(patch))

    def check_resources(self) -> None:
        """Say whether this SDK lets us add resources: for `mcp-probe doctor`, which has no server."""

        def check(module: Any) -> None:
            self.hub.tell(RESOURCES, cannot_add(module.Server))

        self._imports.when_imported("mcp.server.lowlevel.server", self._attach.guarded(check))

    def hooks_for(self, server: Any, session: Attachable) -> tuple[Any, Hooks] | None:
        """(low-level server, its hooks, not yet installed), or ``None`` where no adapter knows ``server``."""
        modern = mcp2.lowlevel_of(server)
        if modern is not None:
            return modern, mcp2.ServerHooks(self.hub, self.loops, self.asgi, session)
        legacy = mcp1.lowlevel_of(server)
        if legacy is not None:
            return legacy, mcp1.HandlerHooks(self.hub, self.loops, session)
        return None

    def can_follow_streams(self, *, is_attached: bool) -> bool:
        """Whether a stream pair is enough to follow requests, without their server.

        ``is_attached``: their server follows them where they are not.
        """
        if mcp1.is_imported():
            if not is_attached:
                missing = "mcp 1.x does not carry a request from its stream to its handler; use attach()"
                self.hub.missing("streams", missing)
            return False
        return True

    def wrap_asgi(self, app: Any) -> ProbedApp:
        """An ASGI app whose exchanges are followed."""
        return ProbedApp(app, self.asgi)

    def _http(self, manager_module: Any) -> None:
        self.http.install(sys.modules["mcp.server.streamable_http"], manager_module)
