"""Streamable HTTP, in process: what the app answers, and what the probe records of it."""

from __future__ import annotations

import copy
import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import SamplingMessage, TextContent

import mcp_probe
from mcp_probe.adapters.asgi import App
from mcp_probe.aggregate.blocking import StepIndex, blame, victim_of
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.socket_reads import SocketReads
from mcp_probe.clock import now_ns
from mcp_probe.model import CROWDING_OPERATION, RequestRecord
from tests.adapters.asgi_client import (
    ACCEPT,
    META,
    Answer,
    Handshake,
    Message,
    Modern,
    message,
    send,
    started,
    with_content_length,
)
from tests.kept import keep, probed, unavailable
from tests.loops import LOOPS


@dataclass(frozen=True)
class Mode:
    """One way to serve and to speak streamable HTTP."""

    client: type[Modern]
    json: bool
    stateless: bool

    def app(self, server: MCPServer) -> Any:
        return server.streamable_http_app(json_response=self.json, stateless_http=self.stateless)


MODES = {
    "modern, json": Mode(Modern, True, False),
    "modern, sse": Mode(Modern, False, False),
    "session, json": Mode(Handshake, True, False),
    "session, sse": Mode(Handshake, False, False),
    "stateless, json": Mode(Handshake, True, True),
    "stateless, sse": Mode(Handshake, False, True),
}
IN_PROCESS = {"queue_transport"}
"""What cannot be seen where no server has read the request from a socket; see test_http_arrival.py."""
in_each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())


class Rendezvous:
    """Lets a test hold tool calls where they are."""

    def __init__(self) -> None:
        self.entered: dict[str, anyio.Event] = {}
        self.leave: dict[str, anyio.Event] = {}

    def expect(self, *keys: str) -> None:
        for key in keys:
            self.entered[key], self.leave[key] = anyio.Event(), anyio.Event()


def make_server(meeting: Rendezvous | None = None) -> MCPServer:
    server = MCPServer("over http", version="1", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + b

    @server.tool()
    def in_thread(text: str) -> str:
        return text[::-1]

    @server.tool()
    async def fail() -> str:
        raise ValueError("refused")

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.report_progress(number, to)
        return f"counted to {to}"

    @server.tool()
    async def large() -> str:
        return "x" * 300_000

    @server.tool()
    async def meet(key: str) -> str:
        assert meeting is not None
        meeting.entered[key].set()
        await meeting.leave[key].wait()
        return key

    @server.tool()
    async def ask(ctx: Context) -> str:
        question = SamplingMessage(role="user", content=TextContent(type="text", text="?"))
        answer = await ctx.session.create_message([question], max_tokens=5, related_request_id=ctx.request_id)
        return f"{getattr(answer.content, 'text', None)}"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}."

    @server.resource("note://today")
    def today() -> str:
        return "a note"

    return server


async def say_everything(mode: Mode, app: App) -> list[Answer]:
    client = mode.client(app)
    await client.open()
    answers = list(getattr(client, "answers", []))
    answers += [
        await client.call(1, "add", a=1, b=2),
        await client.call("two", "add", a=1, b=2),
        await client.call(3, "add", a="no number", b=2),
        await client.call(4, "fail"),
        await client.call(5, "nobody_knows"),
        await client.call(6, "in_thread", text="abc"),
        await client.call(7, "large"),
        await client.call(8, "count", token="p", to=5),
        await client.send(9, "nobody/knows"),
        await client.send(10, "tools/list"),
        await client.send(11, "prompts/get", name="greet", arguments={"name": "you"}),
        await client.send(12, "prompts/get", name="nobody_knows"),
        await client.send(13, "resources/read", uri="note://today"),
        await client.send(14, "ping"),
        await client.send(None, "notifications/cancelled", requestId=99),
        await client.post(b"{not json"),
        await client.post(b"[]"),
        await client.post(b""),
        await client.post(message(15, "tools/call", name="add")),
        await send(app, message(16, "ping"), ACCEPT[:2]),
        await send(app, b"", ACCEPT, method="PUT"),
        await send(app, message(17, "ping"), [*ACCEPT, (b"mcp-session-id", b"no such session")]),
        await send(app, message(18, "ping"), [*ACCEPT, (b"content-length", b"so long")]),
    ]
    if isinstance(client, Handshake) and client.session is not None:
        answers.append(await send(app, b"", client.headers(), method="DELETE"))
        answers.append(await client.call(19, "add", a=1, b=2))
    return answers


def written(answers: list[Answer]) -> list[tuple[int, list[tuple[bytes, bytes]], list[bytes]]]:
    """Everything the answers consist of, with session ids (random) made equal."""

    def plain(text: bytes) -> bytes:
        return re.sub(rb"[0-9a-f]{32}", b"<session>", text)

    return [
        (
            answer.status,
            [(name, plain(value)) for name, value in answer.headers],
            [plain(part.get("body", b"")) for part in answer.messages[1:]],
        )
        for answer in answers
    ]


@in_each_mode
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_probed_app_answers_byte_for_byte_like_the_bare_one(mode: Mode) -> None:
    async with started(mode.app(make_server())) as app:
        bare = written(await say_everything(mode, app))
    server = make_server()
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            answers = written(await say_everything(mode, app))
    assert answers == bare
    assert {status for status, _, _ in bare} >= {200, 202, 400, 406}
    assert kept.requests("add")


def assert_is_whole(record: RequestRecord, hidden: set[str] = IN_PROCESS) -> None:
    """Everything an HTTP exchange lets us see was seen, but for ``hidden``."""
    assert record.transport == "http"
    assert not record.partial
    assert unavailable(record) == hidden
    assert None not in (
        record.budget.queue_dispatch,
        record.budget.write_wait,
        record.budget.write_flush,
    )
    assert record.request_bytes is not None
    assert record.response_bytes is not None and record.response_bytes > 0


@in_each_mode
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_each_request_is_one_record_with_its_tool_and_all_its_parts(mode: Mode) -> None:
    server = make_server()
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            client = mode.client(with_content_length(app))
            await client.open()
            await client.call(1, "add", a=1, b=2)
            await client.call(2, "in_thread", text="abc")
            await client.call(3, "fail")
            await client.call(4, "count", token="p", to=3)
            await client.send(5, "prompts/get", name="greet", arguments={"name": "you"})
            await client.send(6, "tools/list")
            await client.send(7, "nobody/knows")
    opening = [] if mode.client is Modern else [("initialize", "ok")]
    assert sorted((record.name or record.method, record.outcome) for record in kept.requests()) == sorted(
        [
            *opening,
            ("add", "ok"),
            ("in_thread", "ok"),
            ("fail", "tool_error"),
            ("count", "ok"),
            ("greet", "ok"),
            ("tools/list", "ok"),
            ("nobody/knows", "error"),
        ]
    )
    for record in kept.requests():
        assert_is_whole(record)
        assert record.steps > 0
    assert kept.only("nobody/knows").error == "-32601"


def telling(server: MCPServer) -> MCPServer:
    """``server`` with a tool that tells its client something, and is over before all of it has left."""

    @server.tool()
    async def tell(times: int, ctx: Context) -> str:
        for number in range(times):
            await ctx.report_progress(number, times)
        return "told"

    return server


class Slow:
    """A client that takes long for each event; it notes when it had each."""

    def __init__(self, seconds: float = 0.03) -> None:
        self.had_ns: list[tuple[bytes, int]] = []
        self._seconds = seconds

    async def __call__(self, part: Message) -> None:
        if body := part.get("body"):
            await anyio.sleep(self._seconds)
            self.had_ns.append((bytes(body), now_ns()))


async def told_to(client: Modern, slow: Slow, times: int) -> None:
    meta = {**client.envelope.get("_meta", {}), "progressToken": "p"}
    asked = message(1, "tools/call", name="tell", arguments={"times": times}, _meta=meta)
    await client.post(asked, name="tell", on_send=slow)


def assert_ends_with_its_answer(record: RequestRecord, slow: Slow, events: int) -> None:
    *before, (answer, had_ns) = slow.had_ns
    assert len(before) == events and b'"result"' in answer
    assert record.outcome == "ok"
    assert record.end_ns >= had_ns, f"its end is {(had_ns - record.end_ns) / 1e6:.0f} ms before its client had it"
    assert record.response_bytes == len(answer)


@in_each_mode
@pytest.mark.parametrize("anyio_backend", LOOPS)
@pytest.mark.parametrize("times", [1, 3])
async def test_no_notification_is_taken_for_the_answer_behind_it(mode: Mode, times: int) -> None:
    server = telling(make_server())
    slow = Slow()
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            client = mode.client(app)
            await client.open()
            await told_to(client, slow, times)
    assert_ends_with_its_answer(kept.only("tell"), slow, 0 if mode.json else times)


@pytest.mark.parametrize("mode", [MODES["modern, sse"], MODES["session, sse"]], ids=["modern", "session"])
async def test_the_answer_is_known_below_an_app_that_changes_what_events_look_like(mode: Mode) -> None:
    server = telling(make_server())
    slow = Slow()

    def reversing(app: App) -> App:
        async def reversed_(scope: Any, receive: Any, send: Any) -> None:
            async def send_reversed(part: Message) -> None:
                await send({**part, "body": part["body"][::-1]} if part.get("body") else part)

            await app(scope, receive, send_reversed)

        return reversed_

    probe = mcp_probe.attach(server)
    try:
        kept = keep(probe)
        async with started(mode.app(server)) as app:
            client = mode.client(probe.asgi(reversing(app)))
            await client.open()
            await told_to(client, slow, 3)
    finally:
        probe.detach()
    slow.had_ns = [(body[::-1], at) for body, at in slow.had_ns]
    assert_ends_with_its_answer(kept.only("tell"), slow, 3)


async def test_the_end_of_an_answer_in_an_event_of_unknown_form_is_unknown_and_its_total_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(body: bytes) -> bytes | None:
        raise ValueError("an event holds a message of an unknown form")

    monkeypatch.setattr("mcp_probe.adapters.asgi.answer_in", unknown)
    server = telling(make_server())
    with probed(server) as kept:
        async with started(MODES["session, sse"].app(server)) as app:
            client = Handshake(app)
            await client.open()
            await told_to(client, Slow(0.0), 3)
            await told_to(client, slow := Slow(), 3)
    first, second = kept.requests("tell")
    for record in (first, second):
        assert record.outcome == "ok"
        assert "write_flush" in unavailable(record)
    assert second.end_ns <= slow.had_ns[-1][1]


@pytest.mark.parametrize("mode", [MODES["session, json"], MODES["session, sse"]], ids=["json", "sse"])
async def test_session_task_is_not_charged_to_the_request_that_opened_it(mode: Mode) -> None:
    seen: list[object] = []
    server = make_server()

    @server.tool()
    async def whose() -> str:
        seen.append(CURRENT.get())
        return "mine"

    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            client = mode.client(app)
            await client.open()
            for id in range(1, 6):
                await client.call(id, "whose")
    opening = kept.only("initialize")
    assert opening.detached_ns == 0
    assert opening.outcome == "ok"
    assert len(set(seen)) == 5, "each call ran as a request of its own"
    assert len(kept.requests("whose")) == 5


@in_each_mode
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_concurrent_requests_keep_their_own_records(mode: Mode) -> None:
    meeting = Rendezvous()
    meeting.expect("a", "b", "c")
    server = make_server(meeting)
    answers: dict[str, Answer] = {}
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            client = mode.client(app)
            await client.open()

            async def call(id: int, key: str) -> None:
                answers[key] = await client.call(id, "meet", key=key)

            with anyio.fail_after(100):
                async with anyio.create_task_group() as group:
                    for id, key in enumerate("abc", 1):
                        group.start_soon(call, id, key)
                        await meeting.entered[key].wait()
                    await client.call(10, "add", a=1, b=2)
                    for key in "cba":
                        meeting.leave[key].set()
    assert [answers[key].status for key in "abc"] == [200] * 3
    records = kept.requests("meet")
    assert [record.outcome for record in records] == ["ok"] * 3
    for record in [*records, kept.only("add")]:
        assert_known_parts(record)
    inner = kept.only("add")
    assert all(record.arrival_ns < inner.arrival_ns and inner.end_ns < record.end_ns for record in records)


def assert_known_parts(record: RequestRecord) -> None:
    assert record.transport == "http"
    assert unavailable(record) == IN_PROCESS


async def call_and_disconnect(mode: Mode, app: App, meeting: Rendezvous) -> None:
    """Calls ``meet``, leaves once the tool runs, and lets the tool go on only when nobody waits for it any more."""
    client = mode.client(app)
    await client.open()
    gone = anyio.Event()
    params: dict[str, Any] = {"name": "meet", "arguments": {"key": "a"}, **client.envelope}
    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(client.post, message(1, "tools/call", **params), name="meet", gone=gone))
            await meeting.entered["a"].wait()
            gone.set()
            if mode.json:
                meeting.leave["a"].set()  # a JSON answer is not watched for a disconnect
        meeting.leave["a"].set()


@in_each_mode
@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_client_that_disconnects_mid_call_leaves_one_record_and_a_working_server(mode: Mode) -> None:
    meeting = Rendezvous()
    meeting.expect("a")
    server = make_server(meeting)
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            await call_and_disconnect(mode, app, meeting)
            client = mode.client(app)
            await client.open()
            after = await client.call(2, "add", a=1, b=2)
    assert after.status == 200
    left = kept.only("meet")
    assert_known_outcome(mode, left)
    assert kept.only("add").outcome == "ok"


def assert_known_outcome(mode: Mode, left: RequestRecord) -> None:
    if mode.json:
        assert left.outcome == "ok"
    elif mode is MODES["session, sse"]:  # the session goes on with the call; nobody reads its answer
        assert left.outcome == "ok"
        assert "write_flush" in unavailable(left)
        assert left.gone_ns is not None and left.arrival_ns < left.gone_ns <= left.end_ns
    else:
        assert left.outcome == "cancelled"
        assert left.result_ns is None or left.end_ns >= left.result_ns


class Hops:
    """Holds the loop for 10 ms in each turn from when a call can end until its answer is sent, and notes when."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting
        self.free_ns = self.sent_ns = self.over_ns = 0
        self._held: list[tuple[int, int]] = []

    async def sent(self, part: Any) -> None:
        if self.free_ns:  # an event stream starts before
            self.sent_ns = self.sent_ns or time.monotonic_ns()

    async def hold(self) -> None:
        self.free_ns = time.monotonic_ns()
        self._meeting.leave["a"].set()
        while not self.sent_ns:
            began = time.monotonic_ns()
            time.sleep(0.01)
            self._held.append((began, time.monotonic_ns()))
            await anyio.lowlevel.checkpoint()

    @property
    def truth_ms(self) -> float:
        return sum(max(0, min(b, self.sent_ns) - max(a, self.free_ns)) for a, b in self._held) / 1e6


async def _answer_that_hops(mode: Mode, app: App, hops: Hops, meeting: Rendezvous) -> None:
    client = mode.client(app)
    await client.open()
    body = message(1, "tools/call", **client.envelope, name="meet", arguments={"key": "a"})

    async def ask() -> None:
        await client.post(body, name="meet", on_send=hops.sent)
        hops.over_ns = time.monotonic_ns()

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await meeting.entered["a"].wait()
        await anyio.sleep(0.01)
        await hops.hold()


@in_each_mode
async def test_an_answer_that_waits_for_the_loop_on_its_way_out_blames_who_holds_it(mode: Mode) -> None:
    meeting = Rendezvous()
    meeting.expect("a")
    hops = Hops(meeting)
    server = make_server(meeting)
    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            await _answer_that_hops(mode, app, hops, meeting)
    victim = victim_of(kept.only("meet"))
    assert victim is not None
    steps = StepIndex(step for step in kept.steps() if step.end_ns > hops.free_ns)
    blamed = [ends for blocker, ends in blame(victim, steps).rows.items() if blocker != CROWDING_OPERATION]
    low, high = (sum(ends) / 1e6 for ends in zip(*blamed, strict=True))
    assert hops.truth_ms >= 10
    assert low >= 0.9 * hops.truth_ms - 1
    # Between the holds the SDK's own steps run, which a busy machine draws out.
    assert high <= max(1.1 * hops.truth_ms + 10, (hops.over_ns - hops.free_ns) / 1e6)


async def test_an_answer_may_have_waited_for_another_client_that_does_not_read() -> None:
    meeting = Rendezvous()
    meeting.expect("a")
    hops = Hops(meeting)
    mode = MODES["session, sse"]
    server = make_server(meeting)
    stuck, released = anyio.Event(), anyio.Event()

    async def read_nothing(part: Any) -> None:
        stuck.set()
        await released.wait()

    with probed(server) as kept:
        async with started(mode.app(server)) as app:
            other = mode.client(app)
            await other.open()
            body = message(2, "tools/call", name="add", arguments={"a": 1, "b": 2})
            async with anyio.create_task_group() as group:
                group.start_soon(partial(other.post, body, name="add", on_send=read_nothing))
                await stuck.wait()
                await _answer_that_hops(mode, app, hops, meeting)
                released.set()
    waits = [wait for wait in kept.only("meet").waits if wait.stage == "write"]
    assert waits
    assert all(wait.start_ns == wait.end_ns for wait in waits)


async def test_send_that_raises_reaches_the_app_unchanged() -> None:
    class ClientGone(OSError):
        pass

    fault = ClientGone("no longer there")

    async def refuse(part: Any) -> None:
        if part["type"] == "http.response.body":
            raise fault

    server = make_server()
    with probed(server) as kept:
        async with started(MODES["modern, json"].app(server)) as app:
            client = Modern(app)
            with pytest.raises(ClientGone) as caught:
                params = {"name": "add", "arguments": {"a": 1, "b": 2}, **client.envelope}
                await client.post(message(1, "tools/call", **params), name="add", on_send=refuse)
            after = await client.call(2, "add", a=1, b=2)
    assert caught.value is fault
    assert after.status == 200
    assert [record.outcome for record in kept.requests("add")] == ["cancelled", "ok"]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_question_to_the_client_is_part_of_the_request_that_asks() -> None:
    server = make_server()
    asked = anyio.Event()
    question: list[bytes] = []

    async def watch(part: Any) -> None:
        if b"sampling/createMessage" in part.get("body", b""):
            question.append(part["body"])
            asked.set()

    with probed(server) as kept:
        async with started(server.streamable_http_app()) as app:
            client = Handshake(app)
            await client.open()
            answers: list[Answer] = []

            async def ask() -> None:
                body = message(1, "tools/call", name="ask", arguments={})
                answers.append(await client.post(body, on_send=watch))

            with anyio.fail_after(100):
                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    await asked.wait()
                    id = re.search(rb'"id":(\d+)', question[0])
                    assert id is not None
                    content = b'{"role":"assistant","content":{"type":"text","text":"fine"},"model":"m"}'
                    accepted = await client.post(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (id[1], content))
    assert accepted.status == 202
    assert b"fine" in answers[0].body
    record = kept.only("ask")
    assert record.client_wait_ns is not None and record.client_wait_ns > 0
    assert record.outcome == "ok"


async def _ask_once(app: App) -> Answer:
    return await Modern(app).call(1, "add", a=1, b=2)


async def test_app_wrapped_by_hand_and_by_attach_records_each_request_once() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    app = server.streamable_http_app(json_response=True)
    async with started(app):
        answer = await _ask_once(probe.asgi(probe.asgi(app)))
    probe.detach()
    assert answer.status == 200
    assert_known_parts(kept.only("add"))
    assert len(kept.requests()) == 1


async def test_manager_mounted_by_hand_is_followed() -> None:
    server = make_server()
    manager = StreamableHTTPSessionManager(server._lowlevel_server, json_response=True)
    with probed(server) as kept:
        async with manager.run():
            answer = await _ask_once(manager.handle_request)
    assert answer.status == 200
    assert_known_parts(kept.only("add"))


async def test_app_made_before_attaching_is_followed() -> None:
    server = make_server()
    app = server.streamable_http_app(json_response=True)
    with probed(server) as kept:
        async with started(app):
            await _ask_once(app)
    assert_known_parts(kept.only("add"))


async def test_app_of_a_detached_probe_passes_through() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    app = probe.asgi(server.streamable_http_app(json_response=True))
    probe.detach()
    async with started(app):
        answer = await _ask_once(app)
    assert answer.status == 200
    assert kept.requests() == []


async def test_detaching_while_http_requests_are_in_flight_lets_them_finish() -> None:
    meeting = Rendezvous()
    meeting.expect("a")
    server = make_server(meeting)
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    answers: list[Answer] = []
    async with started(server.streamable_http_app()) as app:
        client = Handshake(app)
        await client.open()

        async def call() -> None:
            answers.append(await client.call(1, "meet", key="a"))

        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await meeting.entered["a"].wait()
                probe.detach()
                meeting.leave["a"].set()
        answers.append(await client.call(2, "add", a=1, b=2))
    assert [answer.status for answer in answers] == [200, 200]
    assert b'"a"' in answers[0].body
    assert kept.only("meet").outcome == "unfinished"
    assert kept.requests("add") == []


async def test_what_is_no_http_request_passes_the_wrapped_app() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    with probed(make_server()):
        [probe] = mcp_probe.session.attached()
        wrapped = probe.asgi(app)
        for kind in ("lifespan", "websocket"):
            given: tuple[Any, Any, Any] = ({"type": kind}, object(), object())
            await wrapped(*given)
            assert all(mine is theirs for mine, theirs in zip(seen[-1], given, strict=True))


async def test_wrapped_app_shows_the_attributes_of_the_app() -> None:
    server = make_server()
    app = server.streamable_http_app()
    with probed(server):
        [probe] = mcp_probe.session.attached()
        wrapped = probe.asgi(app)
        assert wrapped.routes is app.routes
        assert wrapped.router is app.router
        assert copy.copy(wrapped).routes is app.routes
        with pytest.raises(AttributeError):
            wrapped.nobody_knows  # noqa: B018


async def test_header_that_is_no_number_costs_only_the_size_of_that_body() -> None:
    server = make_server()
    with probed(server) as kept:
        async with started(server.streamable_http_app(json_response=True)) as app:
            client = Modern(app)
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, **client.envelope}
            for length in (b"so long", b"-5", b"\xff", b"9" * 5000):
                await client.post(message(1, "tools/call", **params), name="add", headers=[(b"content-length", length)])
            await Modern(with_content_length(app)).call(2, "add", a=1, b=2)
    *odd, plain = kept.requests("add")
    assert [record.request_bytes for record in odd] == [None] * 4
    assert plain.request_bytes is not None and plain.request_bytes > 100
    assert ("http transport", "active") in kept.header().hooks


@contextmanager
def listening(app: Any, loop: str) -> Iterator[int]:
    """``app`` behind uvicorn on a free port, in a thread of its own; yields the port."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", loop=loop, lifespan="on", headers=[("date", "never")])
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(100)


def ask_over_a_socket(port: int) -> list[tuple[int, list[tuple[str, str]], bytes]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
    }
    answers = []
    for id, (tool, arguments) in enumerate(
        [("add", {"a": 1, "b": 2}), ("count", {"to": 3}), ("large", {}), ("fail", {}), ("nobody_knows", {})]
    ):
        params = {"name": tool, "arguments": arguments, "_meta": {**META, "progressToken": "p"}}
        connection.request("POST", "/mcp", message(id, "tools/call", **params), {**headers, "mcp-name": tool})
        answer = connection.getresponse()
        answers.append((answer.status, [pair for pair in answer.getheaders() if pair[0] != "date"], answer.read()))
    connection.close()
    return answers


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_probed_app_behind_a_real_http_server_answers_byte_for_byte_like_the_bare_one(loop: str) -> None:
    with listening(make_server().streamable_http_app(), loop) as port:
        bare = ask_over_a_socket(port)
    server = make_server()
    with probed(server) as kept, listening(server.streamable_http_app(), loop) as port:
        assert ask_over_a_socket(port) == bare
    assert [answer[0] for answer in bare] == [200] * 5
    assert [record.name for record in kept.requests()] == ["add", "count", "large", "fail", "nobody_knows"]
    for record in kept.requests():
        assert_is_whole(record, hidden=set())
    assert kept.header().loop == loop


def test_fault_where_the_socket_is_read_costs_only_the_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("ours")

    with listening(make_server().streamable_http_app(), "asyncio") as port:
        bare = ask_over_a_socket(port)
    monkeypatch.setattr(SocketReads, "read", fails)
    server = make_server()
    with probed(server) as kept, listening(server.streamable_http_app(), "asyncio") as port:
        assert ask_over_a_socket(port) == bare
    assert len(kept.requests()) == 5
    for record in kept.requests():
        assert_is_whole(record)
