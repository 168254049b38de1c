"""Arrivals: a request gets its record when its message is seen, and its name when a server claims it.

A :class:`Channel` is one stream pair between a transport and a server: it turns messages into requests on the way in,
and recognises their answers on the way out. Message shapes are read by duck typing (``method``, ``id``, ``params``,
``result``, ``error``; mcp 1.x wraps a message in a model with one field, ``root``), so that capture knows no SDK.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from heapq import nlargest
from itertools import count
from typing import Any, Literal

from mcp_probe.capture.current import CURRENT, EXCHANGE, Exchange
from mcp_probe.capture.live_requests import MAX_NAME, LiveRequests
from mcp_probe.capture.stdin_reads import LineStamp, LineStamps
from mcp_probe.clock import now_ns
from mcp_probe.model import Outcome
from mcp_probe.record.assemble import LATE_NS
from mcp_probe.record.raw import ClientWait, RawRequest, give_up

MAX_WRITER_WAITS = 1024
MAX_WRITE_WAITS = 64
"""Waits of the writer that are remembered, and those that one answer keeps."""

_NAMED = {"tools/call", "prompts/get"}
_CANCELLED = "notifications/cancelled"
_CANCELLED_CODE = -32800
"""Answer of the 2025-era HTTP transport to a peer-cancelled request (mcp/server/streamable_http.py@2.3)."""


_REQUEST, _NOTIFICATION, _RESULT, _ERROR, _OTHER = "request", "notification", "result", "error", "other"
_WRAPPED = "wrapped"
_DATA = re.compile(rb"^data: ?(?=\{)", re.MULTILINE)
"""Only events with a message have it: no comment, no address of an SSE session, none that primes a stream."""
_ANSWER = re.compile(rb'\{"jsonrpc":"2\.0","id":(-?\d+|"(?:[^"\\]|\\.)*"),"(?:result|error)":')
"""An answer (mcp/server/sse.py@1.6-2.3, streamable_http.py@1.8-2.3, _streamable_http_modern.py@2.3)."""
_METHOD = re.compile(rb'"method":')
Starved = tuple[Literal["read", "write"], int, int, str, str]
"""(stage, from_ns, to_ns, pool, who held it): the transport waited for a thread. See ``RequestRecord.starved``."""

MAX_STARVED = 64

_kinds: dict[type, str] = {}
_numbers = count(1)
_set_current = CURRENT.set


def name_of(method: str, params: Any) -> str | None:
    """Tool or prompt name in ``params``, length-capped; other methods have none."""
    if method in _NAMED and isinstance(params, Mapping):
        name = params.get("name")
        if isinstance(name, str):
            return name[:MAX_NAME]
    return None


def _exchange_of(context: Context | None) -> Exchange | None:
    return EXCHANGE.get() if context is None else context.get(EXCHANGE)


class Channel:
    """One stream pair of a server. All methods run on the loop's thread unless they say otherwise."""

    def __init__(self, requests: LiveRequests, transport: str, ready: Callable[[], tuple[int, int, int]]) -> None:
        self.number = next(_numbers)
        self.requests = requests
        self.transport = transport
        self.session: Any = None
        self.stamps: LineStamps | None = None
        self.writer_seen = False
        self.times_writes = False  # it can be seen when the writer takes each message, and when it has flushed it
        self.pending: dict[Any, RawRequest] = {}  # by JSON-RPC id, the latest of each
        self.repeated: dict[Any, dict[int, RawRequest]] = {}  # earlier ones, whose id was used again: id -> by number
        self.sent: dict[int, RawRequest] = {}  # id(item) -> its request, until the writer takes it
        self.writing: RawRequest | None = None
        self.notified: dict[int, RawRequest] = {}  # id(notification) -> who sends it, until the writer takes it
        self.notifying: tuple[RawRequest, int] | None = None  # (who sent it, since when it is written)
        self.writer_waits_ns = 0  # the writer's last call on a thread is over: it waits for the loop, or an answer
        self._writer_waits: deque[tuple[int, int]] = deque(maxlen=MAX_WRITER_WAITS)
        self.asked: dict[Any, tuple[RawRequest, int]] = {}  # requests of ours to the client
        self.protocol_version: str | None = None  # as negotiated by `initialize`
        # Requests that no handler has claimed yet, by id(item), where their context does not reach it (mcp 1.x).
        self.handed: dict[int, RawRequest] | None = None
        self.rejects: Callable[[RawRequest, Any], None] | None = None  # told of requests that get no handler (mcp 1.x)
        self.events: dict[Any, list[RawRequest]] | None = None  # answers for a stream of events (SSE), by JSON-RPC id
        self.starved: deque[Starved] = deque(maxlen=MAX_STARVED)  # appended on worker threads
        self._ready = ready

    # --- in ---

    def received(self, item: Any, context: Context | None) -> Context | None:
        """A message came off the transport. Returns the context its handler must run in, or ``None``.

        ``context`` must be private to this message: the request is written into it.
        """
        stamps = self.stamps
        stamp = stamps.consumed() if stamps is not None else None
        message, kind = message_in(item)
        if kind != _REQUEST and kind != _NOTIFICATION:
            if kind != _OTHER:
                self._answered(message, stamp, context)
            return None
        if kind == _NOTIFICATION and self.handed is not None and self.session is None:
            return None  # nobody would end it: its server is not attached
        requests = self.requests
        method = message.method
        # A notification gets no answer, so it is no call of the tool that it names.
        name = name_of(method, message.params) if kind == _REQUEST and method in _NAMED else None
        raw = requests.open(kind, method, name, self.transport)  # type: ignore[arg-type]
        raw.session = self.session
        raw.channel = self
        raw.settles = True
        raw.taken_ns = now = now_ns()
        if stamp is not None:
            raw.arrival_ns, raw.arrival_earliest_ns, raw.request_bytes = stamp
            raw.decode_ns = now - max(self._ready()[2], stamp[0])
        else:
            exchange = _exchange_of(context)
            if exchange is None or not self._arrived_by(exchange, raw):
                raw.arrival_ns = now
                raw.transport_seen = False
        if self.starved:
            raw.starved = self._starved_since(raw)
        if context is not None:
            context.run(_set_current, raw)
        if self.handed is not None and self.session is not None:
            self.handed[id(item)] = raw
        if kind == _REQUEST:
            raw.request_id = message.id
            earlier = self.pending.get(message.id)
            if earlier is not None:
                self.repeated.setdefault(message.id, {})[earlier.id] = earlier
            self.pending[message.id] = raw
            if self.writer_seen:
                raw.write_seen = True
        elif method == _CANCELLED:
            self._cancelled(getattr(message, "params", None), raw.arrival_ns or now)
        outstanding = len(requests.live) if stamps is None else len(requests.live) + len(stamps.waiting)
        if outstanding > requests.peak:
            requests.peak = outstanding
        return context

    def _cancelled(self, params: Any, at_ns: int) -> None:
        """The client does not want an answer any more."""
        id = params.get("requestId") if isinstance(params, Mapping) else None
        raw = self.pending.get(id) if isinstance(id, (int, str)) else None
        if raw is not None:
            give_up(raw.jobs, at_ns)
            raw.gone_ns = at_ns

    # --- out ---

    def sending(self, item: Any) -> RawRequest | None:
        """A message goes to the writer. Returns the request it answers, or ``None``."""
        message, kind = message_in(item)
        if kind != _RESULT and kind != _ERROR:
            if kind == _REQUEST:
                self._asking(message)
            elif kind == _NOTIFICATION and self.requests.notifications is not None:
                self._notifies(item)
            return None
        raw = self.pending.pop(message.id, None)
        if self.repeated:
            raw = self._answered_of(message.id, raw)
        if raw is None or raw.ended:
            return None
        if kind == _ERROR:
            if raw.first_step_ns is None and self.rejects is not None:
                self.rejects(raw, message.error)
            if raw.outcome != "cancelled":
                note_error(raw, message.error)
        elif raw.method == "tools/call":
            note_result(raw, message.result)
        elif raw.method == "initialize":
            self._negotiated(raw, message.result)
        self.requests.finished(raw, now_ns())
        if self.events is not None:
            self.events.setdefault(message.id, []).append(raw)
        elif self.writer_seen:
            self.sent[id(item)] = raw
        return raw

    def _negotiated(self, raw: RawRequest, result: Any) -> None:
        version = agreed_version(result)
        if version is not None:
            raw.protocol_version = self.protocol_version = version
        info = result.get("serverInfo") if isinstance(result, Mapping) else None
        name = info.get("name") if isinstance(info, Mapping) else None
        if isinstance(name, str) and raw.session is not None:
            raw.session.note_server(name[:MAX_NAME])

    def handed_over(self, raw: RawRequest) -> None:
        """``send`` has returned: the item was taken when this task became ready, or at once."""
        if not raw.write_seen:
            result = raw.result_ns or 0
            ready = self._ready()[1]
            raw.write_taken_ns = taken = ready if ready > result else result
            self.requests.end(raw, taken)

    def not_sent(self, item: Any, raw: RawRequest | None) -> None:
        """``send`` raised: the stream is closed, or the task was cancelled while it waited."""
        self.notified.pop(id(item), None)
        if raw is None:
            return
        waiting = self.sent.pop(id(item), None) or self._take_event(raw.request_id, raw)
        if waiting is not None or not raw.write_seen:
            self.requests.end(raw, now_ns(), "cancelled")

    def taken(self, item: Any) -> None:
        """The writer has taken ``item``."""
        now = now_ns()
        previous, self.writing = self.writing, self.sent.pop(id(item), None)
        if previous is not None:
            self.requests.end(previous, now)
        if self.writing is not None:
            self.writing.write_taken_ns = now
        sender = self.notified.pop(id(item), None)
        self.notifying = None if sender is None else (sender, now)

    def flushed(self) -> None:
        """The flush returned (worker thread)."""
        raw, self.writing = self.writing, None
        if raw is not None:
            now = now_ns()
            raw.flushed_ns = now
            if self.starved:
                raw.starved = self._starved_since(raw)
            raw.write_waits = self._waits_since(raw)
            self.requests.end(raw, now)
        notifying, self.notifying = self.notifying, None
        notifications = self.requests.notifications
        if notifying is not None and notifications is not None:
            notifications.written(notifying[0], now_ns() - notifying[1])

    def writer_left(self, now: int) -> None:
        """The writer hands a call to a worker thread: from its last one until now it was on the loop's side."""
        if now - self.writer_waits_ns > LATE_NS:
            self._writer_waits.append((self.writer_waits_ns, now))

    def writer_got_thread(self, submitted: int, now: int) -> None:
        """A thread was free and began the call only ``now`` (worker thread): it waited for a CPU or for the GIL.

        If the loop had been free meanwhile, the GIL would have been, too.
        """
        if now - submitted > LATE_NS:
            self._writer_waits.append((submitted, now))

    def _waits_since(self, raw: RawRequest) -> tuple[tuple[int, int], ...]:
        """The writer's waits for the loop since ``raw`` had its result; if there are too many, the longest."""
        since = raw.result_ns or 0
        found = []
        for wait in reversed(self._writer_waits):
            if wait[1] <= since:
                break
            found.append(wait)
        if len(found) > MAX_WRITE_WAITS or len(found) == MAX_WRITER_WAITS:
            raw.partial = True
            return tuple(sorted(nlargest(MAX_WRITE_WAITS, found, key=lambda wait: wait[1] - wait[0])))
        return tuple(reversed(found))

    def _starved_since(self, raw: RawRequest) -> tuple[Starved, ...]:
        """Waits of the transport for a thread since ``raw`` may have come. Loop's or worker's thread."""
        since = raw.arrival_earliest_ns or raw.arrival_ns or 0
        return tuple(wait for wait in list(self.starved) if wait[2] > since)

    def event_begins(self, chunk: bytes) -> RawRequest | None:
        """The next event goes out. Returns the request that it answers, if it is an answer.

        Raises: ValueError for a message of a form that is not known; nothing can be told of later ones either.
        """
        if not self.events:
            return None
        answered = answer_in(chunk)
        raw = None if answered is None else self._take_event(json.loads(answered))
        if raw is not None:
            raw.write_taken_ns = now_ns()
            raw.response_bytes = len(chunk)
        return raw

    def event_sent(self, raw: RawRequest) -> None:
        """The event that answers ``raw`` was handed to the server's transport."""
        raw.flushed_ns = now = now_ns()
        self.requests.end(raw, now)

    def _take_event(self, request_id: Any, raw: RawRequest | None = None) -> RawRequest | None:
        """``raw``, or the first answer with this id, if it waits for its event: they leave in their order."""
        waiting = self.events.get(request_id) if self.events else None
        if self.events is None or not waiting or (raw is not None and raw not in waiting):
            return None
        taken = waiting.pop(0 if raw is None else waiting.index(raw))
        if not waiting:
            del self.events[request_id]
        return taken

    def no_more_events(self, outcome: Outcome | None = None) -> None:
        """Events cannot be seen (any more): answers on their way end now."""
        events, self.events = self.events, None
        self.writer_seen = False
        for raw in (raw for waiting in (events or {}).values() for raw in waiting):
            self.requests.lose_write(raw)
            self.requests.end(raw, now_ns(), outcome)

    def close(self) -> None:
        """The session is over. What waits for it will not be handled; where contexts tell that, this does nothing."""
        if self.handed is None:
            return
        self.handed.clear()
        for raw in [*self.pending.values(), *(one for rest in self.repeated.values() for one in rest.values())]:
            if raw.first_step_ns is None:
                self.requests.end(raw, now_ns(), "cancelled")
        self.no_more_events("cancelled")

    def forget(self, raw: RawRequest) -> None:
        """``raw`` has ended without an answer."""
        if self.pending.get(raw.request_id) is raw:
            del self.pending[raw.request_id]
        elif self.repeated:
            self._no_longer(raw)

    def of_id(self, request_id: Any) -> Iterator[RawRequest]:
        """The requests with this id that have no answer yet, latest first: a client may use one again too early."""
        if (latest := self.pending.get(request_id)) is not None:
            yield latest
        if self.repeated:
            yield from reversed(self.repeated.get(request_id, {}).values())

    def _answered_of(self, request_id: Any, latest: RawRequest | None) -> RawRequest | None:
        """Which of the requests with this id is answered now: the one whose handler sends, else the oldest."""
        earlier = self.repeated.get(request_id)
        if not earlier:
            return latest
        sender = CURRENT.get()
        if latest is not None and latest is sender:
            return latest
        answered = earlier.get(sender.id) if sender is not None else None
        if answered is None:
            answered = next(iter(earlier.values()))
        self._no_longer(answered)
        if latest is not None:
            self.pending[request_id] = latest
        return answered

    def _no_longer(self, raw: RawRequest) -> None:
        """One of the earlier requests with its id has got its answer, or will get none."""
        earlier = self.repeated.get(raw.request_id, {})
        earlier.pop(raw.id, None)
        if not earlier:
            self.repeated.pop(raw.request_id, None)

    def _arrived_by(self, exchange: Exchange, raw: RawRequest) -> bool:
        """Whether ``raw`` is the message that came in ``exchange``."""
        if exchange.raw is not None:
            return False
        exchange.brought(raw)
        raw.write_seen = raw.kind == "request" and (exchange.answers or self.writer_seen)
        return True

    def _answered(self, message: Any, stamp: LineStamp | None, context: Context | None) -> None:
        """The client may have answered a request of ours. Its answer may have been there for long."""
        asker, asked = self.asked.pop(getattr(message, "id", None), (None, 0))
        if asker is None:
            return
        now = now_ns()
        if stamp is not None:
            arrival, earliest, _ = stamp
        else:
            exchange = _exchange_of(context)
            arrival, since = (now, now) if exchange is None else exchange.arrival()
            earliest = arrival if since is None else since
        arrival, earliest = max(asked, arrival), max(asked, earliest)
        asker.client_waits = [*asker.client_waits, ClientWait(asked, earliest, arrival, now)]

    def _notifies(self, item: Any) -> None:
        """A handler tells the client something. A server inside of a tool has a channel of its own."""
        raw = CURRENT.get()
        while raw is not None and raw.channel is not self:
            raw = raw.parent
        if raw is None or raw.ended:
            return
        self.requests.notifications.sent(raw)
        if self.times_writes:
            self.notified[id(item)] = raw

    def _asking(self, message: Any) -> None:
        """A handler asks the client something."""
        raw = CURRENT.get()
        if raw is not None and not raw.ended:
            for id, (asker, _) in list(self.asked.items()):  # its client never answered
                if asker.ended:
                    del self.asked[id]
            self.asked[message.id] = (raw, now_ns())


def answer_in(chunk: bytes) -> bytes | None:
    """The id, as JSON, of the request that an event of the SDK answers; ``None`` where it is no answer.

    Raises: ValueError for an event with a message of an unknown form.
    """
    data = _DATA.search(chunk)
    if data is None:
        return None
    answer = _ANSWER.match(chunk, data.end())
    if answer is not None:
        return answer[1]
    if _METHOD.search(chunk, data.end()) is not None:
        return None
    raise ValueError("an event holds a message of an unknown form")


def gone_ns(raw: RawRequest) -> int | None:
    """When the client of ``raw`` gave up, or left without an answer; ``None``: it waited to the end, for all we know.

    A client may close the pipe and read on: if it got an answer after that, it waited for it.
    """
    stamps = None if raw.channel is None else raw.channel.stamps
    ended = None if stamps is None or raw.outcome not in ("cancelled", "unfinished") else stamps.ended_ns
    known = [at for at in (raw.gone_ns, ended) if at is not None]
    return max(min(known), raw.arrival_ns or 0) if known else None


def message_in(item: Any) -> tuple[Any, str]:
    """(message, its kind) of what a stream carries: the SDK's envelope, or before mcp 1.8 the message itself."""
    message: Any = getattr(item, "message", item)
    kind = _kinds.get(type(message)) or _kind_of(message)
    if kind == _WRAPPED:
        message = message.root
        kind = _kinds.get(type(message)) or _kind_of(message)
    return message, kind


def _kind_of(message: Any) -> str:
    """What a message is, by its shape; remembered per class (a missing attribute of a pydantic model costs 2 us)."""
    if isinstance(message, Exception):
        kind = _OTHER
    elif hasattr(message, "root"):
        kind = _WRAPPED
    elif hasattr(message, "method"):
        kind = _REQUEST if hasattr(message, "id") else _NOTIFICATION
    elif hasattr(message, "error"):
        kind = _ERROR
    elif hasattr(message, "result"):
        kind = _RESULT
    else:
        kind = _OTHER
    _kinds[type(message)] = kind
    return kind


def agreed_version(result: Any) -> str | None:
    """The protocol's version in the answer to `initialize`; up to then the SDK assumes one."""
    if isinstance(result, Mapping):
        version = result.get("protocolVersion")
    else:
        version = getattr(result, "protocol_version", None) or getattr(result, "protocolVersion", None)
    return version[:MAX_NAME] if isinstance(version, str) else None


def note_error(raw: RawRequest, error: Any) -> None:
    """``raw`` was answered with a JSON-RPC error. Keeps its code, never its message."""
    code = getattr(error, "code", None)
    raw.outcome = "cancelled" if code == _CANCELLED_CODE else "error"
    raw.error = str(code)
    raw.error_code = None if code is None else str(code)


def note_result(raw: RawRequest, result: Any) -> None:
    """Note whether a tool's result says that it failed. Never keeps anything of its content."""
    if raw.method != "tools/call":
        return
    failed = result.get("isError") if isinstance(result, Mapping) else getattr(result, "is_error", None)
    if failed is True:
        raw.outcome = "tool_error"
        raw.error = "tool_error"
