"""A streamable HTTP server: one POST a request, over as many connections as there are requests in flight."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from mcp_probe.clock import now_ns
from mcp_probe.errors import MissingExtraError
from mcp_probe.workloads.load import wire
from mcp_probe.workloads.load.handshake import Say, shake_hands
from mcp_probe.workloads.load.peer import Peer, Target
from mcp_probe.workloads.load.wire import LEGACY, Order, Reply

try:
    import aiohttp
except ImportError as exc:
    raise MissingExtraError(
        'Load over HTTP needs the aiohttp package: pip install "mcp-probe-profiler[bench]", or just aiohttp.'
    ) from exc

_END_OF_STREAM_S = 1.0
"""An event stream that is not ended this long after its answer is dropped, and its connection with it."""


class HttpPeer(Peer):
    """One endpoint. Made by :func:`http_peer`."""

    def __init__(self, target: Target, client: aiohttp.ClientSession) -> None:
        self._target = target
        self._client = client
        self._session_id = ""
        self._numbers = 0
        self._asides: set[asyncio.Future[Any]] = set()

    def post(self, order: Order, *, stamped: bool = False) -> asyncio.Future[Reply]:
        self._numbers += 1
        return asyncio.ensure_future(self._post(self._numbers, order, stamped))

    def notify(self, order: Order) -> asyncio.Future[Reply]:
        return asyncio.ensure_future(self._post(None, order, False))

    def gone(self) -> str:
        """Always empty: the next request may find the server back."""
        return ""

    async def last_words(self) -> str:
        """Empty, as :meth:`gone`."""
        return ""

    def heard(self) -> str:
        """Empty: what the server writes to its stderr does not come here."""
        return ""

    async def _post(self, number: int | None, order: Order, stamped: bool) -> Reply:
        now = now_ns()
        try:
            body = wire.encode(number, order, modern=self.modern, sent_ns=now if stamped else None)
            return await self._exchange(number, order, body, now)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as exc:
            failed_ns = now_ns()
            cause, said = _told(exc, self._target.url)
            return Reply(now, failed_ns, "transport error", said, cause=cause)

    def _headers(self, order: Order) -> dict[str, str]:
        headers = wire.headers_of(order, modern=self.modern)
        if not self.modern:
            headers["mcp-protocol-version"] = self.protocol or LEGACY
            if order.method == "initialize":
                del headers["mcp-protocol-version"]
            elif self._session_id:
                headers["mcp-session-id"] = self._session_id
        return {**headers, **self._target.headers}

    def _took_session(self, order: Order, response: aiohttp.ClientResponse) -> None:
        """A session is what `initialize` opens: mcp 1.30 names another one where it refuses what came before."""
        if order.method == "initialize" and response.status < 400:
            self._session_id = response.headers.get("mcp-session-id", "")

    async def _exchange(self, number: int | None, order: Order, body: bytes, sent_ns: int) -> Reply:
        headers = self._headers(order)
        async with self._client.post(self._target.url, data=body, headers=headers, allow_redirects=False) as response:
            self._took_session(order, response)
            if number is None:
                await response.read()
                now = now_ns()
                failure = "" if response.status < 400 else f"HTTP {response.status}"
                return Reply(sent_ns, now, "transport error" if failure else "ok", failure, cause=failure)
            if response.content_type == "text/event-stream":
                return await self._events(response, number, sent_ns)
            content = await response.read()
            now = now_ns()
            with suppress(ValueError):
                message = json.loads(content)
                if isinstance(message, Mapping) and ("result" in message or "error" in message):
                    reply = wire.read(message, sent_ns, now)
                    return reply if response.status < 400 else replace(reply, cause=f"HTTP {response.status}")
        text = wire.one_line(content[:400].decode(errors="replace"))
        where = f" to {response.headers.get('location')}" if 300 <= response.status < 400 else ""
        said = f"HTTP {response.status}{where}" + (f": {text}" if text else "")
        cause = f"HTTP {response.status}" if response.status >= 300 else wire.NO_ANSWER
        return Reply(sent_ns, now, "transport error", said, cause=cause)

    async def _events(self, response: aiohttp.ClientResponse, number: int, sent_ns: int) -> Reply:
        """The answer among the events of a stream."""
        events = EventStream()
        async for chunk in response.content.iter_any():
            now = now_ns()
            for data in events.feed(chunk):
                message = json.loads(data)
                if "method" in message:
                    if message.get("id") is not None:
                        self._answer(message)
                elif message.get("id") == number or "error" in message:
                    await self._drained(response)
                    return wire.read(message, sent_ns, now)
        said = "the event stream ended without an answer"
        return Reply(sent_ns, now_ns(), "transport error", said, cause=wire.NO_ANSWER)

    async def _drained(self, response: aiohttp.ClientResponse) -> None:
        """Reads the end of the stream, so that its connection can be used again."""
        if response.content.at_eof():
            return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(response.read(), _END_OF_STREAM_S)
            return
        response.close()

    def _answer(self, message: Mapping[str, Any]) -> None:
        """A client without capabilities still answers a ping."""

        async def send() -> None:
            headers = self._headers(Order("", {}))
            with suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
                async with self._client.post(self._target.url, data=wire.answer_to_server(message), headers=headers):
                    pass

        aside = asyncio.ensure_future(send())
        self._asides.add(aside)
        aside.add_done_callback(self._asides.discard)

    async def leave(self) -> None:
        """Ends the session of the older protocol."""
        if self._session_id and not self.modern:
            headers = {
                **self._target.headers,
                "mcp-session-id": self._session_id,
                "mcp-protocol-version": self.protocol,
            }
            patience = aiohttp.ClientTimeout(total=2.0)
            with suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
                async with self._client.delete(self._target.url, headers=headers, timeout=patience):
                    pass


class EventStream:
    """Server-sent events from chunks of bytes; only their data matters here.

    Source: WHATWG HTML, 9.2.6 (interpreting an event stream).
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that ``chunk`` completes; events without data are none."""
        text = self._rest + chunk
        if text.endswith(b"\r"):  # perhaps the first half of a line end
            lines, self._rest = text[:-1].splitlines(), b"\r"
            self._rest = (lines.pop() if lines and not text[:-1].endswith((b"\n", b"\r")) else b"") + b"\r"
        else:
            lines = text.splitlines()
            self._rest = lines.pop() if lines and not text.endswith(b"\n") else b""
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


@asynccontextmanager
async def http_peer(target: Target, connections: int, say: Say | None = None) -> AsyncIterator[HttpPeer]:
    """Reaches the target's URL; see :func:`mcp_probe.workloads.load.connecting.connect`."""
    connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=60.0, force_close=False)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=1 << 20
    ) as client:
        peer = HttpPeer(target, client)
        await shake_hands(peer, target, say)
        try:
            yield peer
        finally:
            await asyncio.shield(peer.leave())


def _told(exc: BaseException, url: str) -> tuple[str, str]:
    """The kind of failure, and a sentence, which may name ports, sizes and what else differs from one to the next."""
    number = getattr(exc, "errno", None) or getattr(getattr(exc, "os_error", None), "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        what = "no file descriptor is left for another connection; raise the limit with `ulimit -n`, or send less"
        return "no file descriptor left", what
    if number == errno.ECONNREFUSED:
        return "connection refused", f"nobody listens at {url}"
    said = wire.one_line(str(exc) or type(exc).__name__)
    if number in (errno.ECONNRESET, errno.EPIPE):
        return "connection reset", said
    for kind, name in (
        (asyncio.TimeoutError, "no connection in time"),
        (aiohttp.ServerDisconnectedError, "connection closed unanswered"),
        (aiohttp.ClientPayloadError, "answer cut off"),
        (aiohttp.ClientConnectionError, "no connection"),
        (ValueError, wire.NO_ANSWER),
    ):
        if isinstance(exc, kind):
            return name, said
    return type(exc).__name__, said
