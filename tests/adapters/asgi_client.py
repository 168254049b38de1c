"""An HTTP client one level below HTTP: calls an ASGI app, and keeps each message the app sends as it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio

from mcp_probe.adapters.asgi import App

Message = MutableMapping[str, Any]
Header = tuple[bytes, bytes]

ACCEPT: tuple[Header, ...] = (
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Answer:
    """What the app sent for one request, message by message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.raised: BaseException | None = None

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def headers(self) -> list[Header]:
        return list(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


async def send(
    app: App,
    body: bytes,
    headers: Iterable[Header] = ACCEPT,
    *,
    method: str = "POST",
    gone: anyio.Event | None = None,
    on_send: Callable[[Message], Awaitable[None]] | None = None,
) -> Answer:
    """One HTTP request. ``gone``: set it to disconnect; ``on_send`` sees each message first, and may raise."""
    answer = Answer()
    gone = gone or anyio.Event()
    unread = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def deliver(message: Message) -> None:
        if on_send is not None:
            await on_send(message)
        await anyio.lowlevel.checkpoint()
        answer.messages.append(dict(message))

    await app(scope, receive, deliver)
    return answer


@asynccontextmanager
async def started(app: Any) -> AsyncIterator[Any]:
    """``app`` (Starlette) with its lifespan entered."""
    async with app.router.lifespan_context(app):
        yield app


def message(id: Any, method: str, **params: Any) -> bytes:
    """A JSON-RPC message; ``id`` None makes it a notification."""
    fields: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(fields if id is None else {**fields, "id": id}).encode()


def with_content_length(app: App) -> App:
    """``app``, whose requests say how long their bodies are, as an HTTP server's do."""

    async def sized(scope: Any, receive: Any, send: Any) -> None:
        unread = [await receive()]
        length = b"%d" % len(unread[0]["body"])

        async def receive_again() -> Message:
            following: Message = unread.pop() if unread else await receive()
            return following

        await app({**scope, "headers": [*scope["headers"], (b"content-length", length)]}, receive_again, send)

    return sized


class Modern:
    """The 2026-07-28 era: each POST stands alone."""

    envelope: ClassVar[dict[str, Any]] = {"_meta": META}

    def __init__(self, app: App) -> None:
        self._app = app

    async def open(self) -> None:
        pass

    def headers(self, method: str, name: Any) -> list[Header]:
        headers = [*ACCEPT, (b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", method.encode())]
        return [*headers, (b"mcp-name", name.encode())] if isinstance(name, str) else headers

    async def post(
        self, body: bytes, method: str = "tools/call", name: Any = None, headers: Iterable[Header] = (), **how: Any
    ) -> Answer:
        return await send(self._app, body, [*self.headers(method, name), *headers], **how)

    async def send(self, id: Any, method: str, **params: Any) -> Answer:
        return await self.post(message(id, method, **{**self.envelope, **params}), method, params.get("name"))

    async def call(self, id: Any, tool: str, *, token: str | None = None, **arguments: Any) -> Answer:
        params = dict(self.envelope)
        if token is not None:
            params["_meta"] = {**params.get("_meta", {}), "progressToken": token}
        return await self.send(id, "tools/call", name=tool, arguments=arguments, **params)


class Handshake(Modern):
    """The 2025-11-25 era: ``initialize`` first, and its session's id (if it gives one) from then on."""

    envelope: ClassVar[dict[str, Any]] = {}

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.session: bytes | None = None
        self.answers: list[Answer] = []

    async def open(self) -> None:
        info = {"name": "raw", "version": "1"}
        opened = await self.send(
            0, "initialize", protocolVersion="2025-11-25", capabilities={"sampling": {}}, clientInfo=info
        )
        self.session = opened.header(b"mcp-session-id")
        self.answers = [opened, await self.send(None, "notifications/initialized")]

    def headers(self, method: str = "", name: Any = None) -> list[Header]:
        if self.session is None:
            return list(ACCEPT)
        return [*ACCEPT, (b"mcp-session-id", self.session), (b"mcp-protocol-version", b"2025-11-25")]
