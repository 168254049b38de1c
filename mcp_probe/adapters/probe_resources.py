"""Resources of the probe on the profiled server, if asked for: an agent reads why its own tools are slow.

What the server has itself comes first and stays as it is: its resources, their order, its errors. A URI that it lists,
or has a template for, is its own, whatever its scheme. ``probe://…`` is listed behind them, on the last page; without
resources of its own the server has these only. Reading one is no request of the report.

The text is made on a thread, and waited for without a thread of the server's pools: those may be what is full.

Source: mcp/server/lowlevel/server.py, 2.3 (``get_request_handler``) and 1.6-1.30 (``request_handlers``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import UNPROFILED
from mcp_probe.capture.worker import Worker

HOOK = "resources"
SCHEME = "probe://"
KINDS: Mapping[str, tuple[str, str, str]] = {
    "probe://report": ("probe-report", "text/plain", "What mcp_probe has measured of this server so far, as a report."),
    "probe://findings": (
        "probe-findings",
        "application/json",
        "Why tools of this server are slow, as mcp_probe has found: codes, sentences, evidence and advice.",
    ),
}
"""URI -> its name, MIME type and description."""

LIST, READ, TEMPLATES = "resources/list", "resources/read", "resources/templates/list"
MAX_PAGES = 50
_ABSENT = object()
_FIRST_S, _PAUSE_S = 0.002, 0.05

Tell = Callable[[str], str]
"""The text of ``report`` or ``findings``; blocks, and may raise a ProbeError. Never called on a loop's thread."""

Ask = Callable[[str, "str | None"], Awaitable[Any]]
"""(LIST or TEMPLATES, cursor) -> what the server itself answers; ``None`` if it has no handler for that."""


class _Telling:
    """One text in the making; whoever asks meanwhile gets the same."""

    def __init__(self, tell: Tell, kind: str) -> None:
        self._tell = tell
        self._kind = kind
        self.text: str | None = None
        self.error = ""
        self.over = False

    def __call__(self) -> None:
        try:
            self.text = self._tell(self._kind)
        except Exception as exc:  # noqa: BLE001 - the client is told
            self.error = str(exc) or type(exc).__name__
        self.over = True


class ProbeResources:
    """The two resources of one session's servers."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._telling: dict[str, _Telling] = {}

    async def text_of(self, uri: str) -> str:
        """What ``uri`` says now. The request that asks is none of the report's. Raises: RuntimeError."""
        import anyio

        raw = CURRENT.get()
        if raw is not None and not raw.ended:
            raw.session = UNPROFILED
        telling = self._telling.get(uri)
        if telling is None or telling.over:
            telling = _Telling(self._tell, uri.removeprefix(SCHEME))
            Worker("mcp-probe-resource", telling).start()
            self._telling[uri] = telling
        pause = _FIRST_S
        while not telling.over:
            await anyio.sleep(pause)
            pause = min(2 * pause, _PAUSE_S)
        if telling.text is None:
            raise RuntimeError(f"mcp_probe cannot say it: {telling.error}")
        return telling.text

    async def listed(self, page: Any, is_last: bool, is_first: bool, ask: Ask) -> list[dict[str, Any]]:
        """What to list behind ``page``, which is what the server itself lists."""
        if not is_last:
            return []
        own = _uris(page) if is_first else await self._own(ask, LIST)
        return [described(uri) for uri in KINDS if uri not in own]

    async def is_own(self, uri: str, ask: Ask) -> bool:
        """Whether the server has ``uri`` itself, as far as it says."""
        if uri in await self._own(ask, LIST):
            return True
        return any(_fits(template, uri) for template in await self._own(ask, TEMPLATES))

    @staticmethod
    async def _own(ask: Ask, method: str) -> set[str]:
        found: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await ask(method, cursor)
            except Exception:  # noqa: BLE001 - a server that cannot list has nothing listed
                break
            found |= _uris(page)
            cursor = next_cursor(page)
            if cursor is None:
                break
        return found


def described(uri: str) -> dict[str, Any]:
    """``uri`` as an entry of a list, on the wire."""
    name, kind, description = KINDS[uri]
    return {"uri": uri, "name": name, "mimeType": kind, "description": description}


def _contents(uri: str, text: str) -> Any:
    """The answer of a read, as the SDK's own shape: it knows what else belongs to it."""
    answer = {"contents": [{"uri": uri, "mimeType": KINDS[uri][1], "text": text}]}
    return _types().ReadResourceResult.model_validate(answer)


def next_cursor(page: Any) -> str | None:
    """Where the next page begins."""
    found = _field(page, "next_cursor", "nextCursor")
    return found if isinstance(found, str) else None


def _field(thing: Any, name: str, wire: str) -> Any:
    """mcp 2.x has ``name``, mcp 1.x and the wire have ``wire``; asking for the other may be deprecated."""
    if isinstance(thing, Mapping):
        return thing.get(wire)
    found = getattr(thing, name, _ABSENT)
    return getattr(thing, wire, None) if found is _ABSENT else found


def _entries(page: Any) -> Sequence[Any]:
    for names in (("resources", "resources"), ("resource_templates", "resourceTemplates")):
        found = _field(page, *names)
        if isinstance(found, (list, tuple)):
            return found
    return ()


def _uris(page: Any) -> set[str]:
    found = set()
    for entry in _entries(page):
        uri = _field(entry, "uri", "uri") or _field(entry, "uri_template", "uriTemplate")
        if uri is not None:
            found.add(str(uri))
    return found


def _fits(template: str, uri: str) -> bool:
    """Whether ``uri`` may be of ``template``: each expression of RFC 6570 stands for anything."""
    parts = [re.escape(part) for part in re.split(r"\{[^{}]*\}", template)]
    return re.fullmatch(".*".join(parts), uri) is not None


def cannot_add(server_class: type) -> str | None:
    """Why resources cannot be added to servers of this class; ``None`` if they can."""
    if not hasattr(server_class, "get_capabilities"):
        return "this mcp makes a server's capabilities in a way that is not known to us"
    if not any(hasattr(server_class, name) for name in ("get_request_handler", "_handle_request")):
        return "this mcp looks up handlers in a way that is not known to us"
    return None


def advertise(hook: Hook, server: Any) -> None:
    """A server without resources of its own says that it has some; else clients would not ask."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def get_capabilities(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            return (hook.call(_with_resources, found) or found) if hook.active else found

        return get_capabilities

    hook.replace(server, "get_capabilities", make)


def _with_resources(capabilities: Any) -> Any:
    if capabilities.resources is not None:
        return capabilities
    return capabilities.model_copy(update={"resources": _types().ResourcesCapability()})


def _types() -> Any:
    return sys.modules["mcp.types"]


# --- mcp 2.x --------------------------------------------------------------------------------------


class ModernHandlers:
    """On one low-level server of mcp 2.x: handlers around its own, made anew for each message."""

    def __init__(self, hook: Hook, hub: Hub, resources: ProbeResources) -> None:
        self._hook = hook
        self._hub = hub
        self._resources = resources

    def install(self, server: Any) -> None:
        """Raises: AttributeError if this release looks handlers up another way."""
        self._hook.replace(server, "get_request_handler", self._make)
        advertise(self._hook, server)
        self._hub.working(HOOK)

    def _make(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        @wraps(original)
        def get_request_handler(method: str) -> Any:
            entry = original(method)
            if not self._hook.active or method not in (LIST, READ):
                return entry
            return self._hook.call(self._around, method, entry, original) or entry

        return get_request_handler

    def _around(self, method: str, entry: Any, original: Callable[[str], Any]) -> Any:
        async def handler(ctx: Any, params: Any) -> Any:
            return await (self._list if method == LIST else self._read)(ctx, params, entry, original)

        if entry is not None:
            return replace(entry, handler=handler)
        types, module = _types(), sys.modules["mcp.server.lowlevel.server"]
        given = types.PaginatedRequestParams if method == LIST else types.ReadResourceRequestParams
        return module.HandlerEntry(given, handler)

    async def _list(self, ctx: Any, params: Any, entry: Any, original: Callable[[str], Any]) -> Any:
        page = _types().ListResourcesResult(resources=[]) if entry is None else await entry.handler(ctx, params)
        if not isinstance(page, Mapping) and not hasattr(page, "resources"):
            return page
        is_last, is_first = next_cursor(page) is None, getattr(params, "cursor", None) is None
        ours = await self._resources.listed(page, is_last, is_first, _asking(ctx, original))
        return self._hook.call(_extended, page, ours) or page

    async def _read(self, ctx: Any, params: Any, entry: Any, original: Callable[[str], Any]) -> Any:
        uri = str(params.uri)
        if uri not in KINDS or (entry is not None and await self._resources.is_own(uri, _asking(ctx, original))):
            if entry is None:
                raise _not_found(READ)
            return await entry.handler(ctx, params)
        return _contents(uri, await self._resources.text_of(uri))


def _asking(ctx: Any, original: Callable[[str], Any]) -> Ask:
    async def ask(method: str, cursor: str | None) -> Any:
        entry = original(method)
        if entry is None:
            return None
        params = entry.params_type.model_validate({} if cursor is None else {"cursor": cursor}, by_name=False)
        return await entry.handler(ctx, params)

    return ask


def _extended(page: Any, ours: list[dict[str, Any]]) -> Any:
    if not ours:
        return page
    if isinstance(page, Mapping):
        return {**page, "resources": [*page.get("resources", ()), *ours]}
    made = [_types().Resource.model_validate(one) for one in ours]
    return page.model_copy(update={"resources": [*page.resources, *made]})


def _not_found(method: str) -> Exception:
    """What the SDK raises for a method without a handler."""
    runner: Any = sys.modules["mcp.server.runner"]
    error: Exception = runner.MCPError(code=runner.METHOD_NOT_FOUND, message="Method not found", data=method)
    return error


# --- mcp 1.x --------------------------------------------------------------------------------------


class LegacyHandlers:
    """On one low-level server of mcp 1.x. It finds a handler in a table, by the type of the request.

    Ours stands there from just before the server looks until it calls it, and nothing else runs in between.
    """

    def __init__(self, hook: Hook, hub: Hub, resources: ProbeResources) -> None:
        self._hook = hook
        self._hub = hub
        self._resources = resources

    def install(self, server: Any) -> None:
        """Raises: AttributeError if this release looks handlers up another way."""
        server.request_handlers.get(None)
        advertise(self._hook, server)
        self._hub.working(HOOK)

    def stand_in(self, server: Any, req: Any) -> None:
        """``server`` is about to look for the handler of ``req``. Any failure is the hook's."""
        types = _types()
        kind = type(req)
        if kind is types.ListResourcesRequest:
            answer = self._list
        elif kind is types.ReadResourceRequest and str(req.params.uri) in KINDS:
            answer = self._read
        else:
            return
        table = server.request_handlers
        own = table.get(kind)

        async def handler(request: Any) -> Any:
            if own is None:
                table.pop(kind, None)
            else:
                table[kind] = own
            return await answer(table, request, own)

        table[kind] = handler

    async def _list(self, table: Any, request: Any, own: Any) -> Any:
        types = _types()
        result = types.ServerResult(types.ListResourcesResult(resources=[])) if own is None else await own(request)
        page = getattr(result, "root", result)
        is_last, is_first = next_cursor(page) is None, _cursor_of(request) is None
        ours = await self._resources.listed(page, is_last, is_first, _looking(table))
        if not ours or not hasattr(page, "resources"):
            return result
        extended = self._hook.call(_extended, page, ours)
        return result if extended is None else types.ServerResult(extended)

    async def _read(self, table: Any, request: Any, own: Any) -> Any:
        uri = str(request.params.uri)
        if own is not None and await self._resources.is_own(uri, _looking(table)):
            return await own(request)
        types = _types()
        return types.ServerResult(_contents(uri, await self._resources.text_of(uri)))


def _cursor_of(request: Any) -> Any:
    return getattr(getattr(request, "params", None), "cursor", None) or getattr(request, "cursor", None)


def _looking(table: Any) -> Ask:
    async def ask(method: str, cursor: str | None) -> Any:
        types = _types()
        kind = types.ListResourcesRequest if method == LIST else types.ListResourceTemplatesRequest
        own = table.get(kind)
        if own is None:
            return None
        given: dict[str, Any] = {"method": method}
        if cursor is not None:  # a field of the request until 1.8, then of its params
            given |= {"cursor": cursor, "params": {"cursor": cursor}}
        result = await own(kind.model_validate(given))
        return getattr(result, "root", result)

    return ask
