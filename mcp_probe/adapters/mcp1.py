"""mcp 1.x (and fastmcp 2 and 3 on it): the one seam that served every release from 1.6 to 1.30.

``Server._handle_request`` runs in a task of its own per request. What happens before it (transport,
dispatch) and after its answer is handed to the writer cannot be seen there: unavailable.

Source: mcp/server/lowlevel/server.py and mcp/shared/session.py, 1.30.
"""

from __future__ import annotations

from typing import Any

from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.queueing import MAX_NAME
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "request handler (mcp 1.x)"
_NAMED = ("tools/call", "prompts/get")


def lowlevel_of(server: Any) -> Any:
    """The low-level mcp 1.x server behind ``server`` (FastMCP, fastmcp 2/3, or itself), or ``None``."""
    for candidate in (server, getattr(server, "_mcp_server", None)):
        if candidate is not None and hasattr(candidate, "request_handlers") and hasattr(candidate, "_handle_request"):
            return candidate
    return None


def _transport_of(message: Any) -> str:
    """http where the transport handed its HTTP request on; stdio and in-process streams look alike here."""
    metadata = getattr(message, "message_metadata", None)
    return "unknown" if getattr(metadata, "request_context", None) is None else "http"


class HandlerHooks:
    """What attaching to one mcp 1.x server replaces on that server."""

    def __init__(self, hub: Hub, loops: Loops, session: Any) -> None:
        self._hub = hub
        self._loops = loops
        self._session = session
        self._patches = Patches()
        self.active = True

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self._patches.replace(server, "_handle_request", self._make_handle(server._handle_request))
        self._hub.working(HOOK)

    def restore(self) -> list[str]:
        """Put it back."""
        self.active = False
        return self._patches.restore()

    def _make_handle(self, original: Any) -> Any:
        hooks = self

        async def _handle_request(message: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            raw, entered = hooks._enter(message, req)
            try:
                call = original(message, req, *args, **kwargs)
                return await (call if raw is None else hooks._loops.followed(call, raw))
            except BaseException as exc:
                if raw is not None and raw.result_ns is None:
                    raw.outcome = "error" if isinstance(exc, Exception) else "cancelled"
                raise
            finally:
                hooks._leave(raw, entered)

        return _handle_request

    def _enter(self, message: Any, req: Any) -> tuple[RawRequest | None, Any]:
        if not self.active:
            return None, None
        try:
            track = self._loops.follow()
            method = getattr(req, "method", type(req).__name__)
            name = getattr(getattr(req, "params", None), "name", None) if method in _NAMED else None
            tool = name[:MAX_NAME] if isinstance(name, str) else None
            raw = self._hub.begin("request", method, tool, _transport_of(message), self._session)
            raw.request_id = getattr(message, "request_id", None)
            raw.protocol_version = None
            respond = message.respond

            async def probed_respond(response: Any) -> None:
                self._result(raw, response)
                await respond(response)

            message.respond = probed_respond
            return raw, None if track is None else (track, track.enter(raw))
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._fail(exc)
            return None, None

    def _result(self, raw: RawRequest, response: Any) -> None:
        try:
            self._hub.desk.finished(raw, now_ns())
            root = getattr(response, "root", response)
            code = getattr(root, "code", None)
            if code is not None:
                raw.outcome, raw.error = "error", str(code)
            elif getattr(root, "isError", None) is True:
                raw.outcome, raw.error = "tool_error", "tool_error"
        except Exception as exc:  # noqa: BLE001
            self._fail(exc)

    def _leave(self, raw: RawRequest | None, entered: Any) -> None:
        if raw is None:
            return
        try:
            if entered is not None:
                entered[0].leave(raw, entered[1])
            now = now_ns()
            if raw.result_ns is None and raw.outcome == "ok":
                raw.outcome = "cancelled"
            if raw.result_ns is not None:
                raw.write_taken_ns = now
            self._hub.desk.end(raw, now)
        except Exception as exc:  # noqa: BLE001
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        self.active = False
        self._hub.fail(HOOK, exc)
