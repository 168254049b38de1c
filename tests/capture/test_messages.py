"""Messages in and out of one channel: whose request each is, when it was answered, written and over."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.capture.current import CURRENT, EXCHANGE, Exchange
from mcp_probe.capture.live_requests import MAX_NAME, LiveRequests
from mcp_probe.capture.messages import Channel, answer_in, gone_ns
from mcp_probe.capture.stdin_reads import LineStamps
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import Job


class Shape:
    """A message of some shape; each shape is a class of its own, as in the SDK."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Request(Shape): ...


class Notification(Shape): ...


class Result(Shape): ...


class Error(Shape): ...


class Other(Shape): ...


class Params(Mapping[str, Any]):
    """Parameters that are a mapping but no dict."""

    def __init__(self, **parts: Any) -> None:
        self._parts = parts

    def __getitem__(self, key: str) -> Any:
        return self._parts[key]

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class Session:
    """Counts what has finished."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.name = ""

    def note_server(self, name: str) -> None:
        self.name = name

    def finish(self, raw: Any) -> None:
        self.finished.append(raw.id)


class Stamps:
    """Lines of a transport: three known ones, then none."""

    def __init__(self) -> None:
        self.left = [(1_000, 900, 10), (2_000, 2_000, 20), (3_000, 3_000, 30)]
        self.waiting = [1, 2]

    def consumed(self) -> Any:
        return self.left.pop(0) if self.left else None


class Came:
    """The bytes of an HTTP exchange."""

    is_first = False

    def __init__(self, latest: int = 50, earliest: int = 40) -> None:
        self.bounds = latest, earliest

    def arrival(self) -> tuple[int, int]:
        return self.bounds


def an_exchange() -> Exchange:
    """One that brought a message."""
    return Exchange(45, Came(), 7)  # type: ignore[arg-type]


ids = st.integers(0, 3) | st.sampled_from(["a", "b"])
methods = st.sampled_from(["tools/call", "prompts/get", "ping", "x" * (MAX_NAME + 5), "notifications/cancelled"])
names = st.sampled_from(["tool", "", "n" * (MAX_NAME + 5), None, 5])
kinds_of_params = st.sampled_from(["dict", "mapping", "none", "nameless"])
results = st.sampled_from([{"isError": True}, {"isError": False}, {}, Params(isError=True), Shape(is_error=True), None])
places = st.integers(0, 7)
calls = st.one_of(
    st.tuples(st.just("request"), ids, methods, names, kinds_of_params, st.sampled_from(["none", "plain", "exchange"])),
    st.tuples(st.just("notification"), methods, st.booleans()),
    st.tuples(st.just("answered"), ids),
    st.tuples(st.just("oddity"), st.booleans()),
    st.tuples(st.just("result"), ids, results),
    st.tuples(st.just("error"), ids, st.sampled_from([-32800, -32603, None])),
    st.tuples(st.just("asks"), ids, places),
    st.tuples(st.just("taken"), places),
    st.tuples(st.just("not_sent"), places, places),
    st.tuples(st.just("handed_over"), places),
    st.just(("flushed",)),
    st.tuples(st.just("ends"), places, st.sampled_from([None, "cancelled", "error"])),
    st.tuples(st.just("settles"), places),
    st.tuples(st.just("writer_seen"), st.booleans()),
    st.tuples(st.just("session"), st.booleans()),
    st.tuples(st.just("stamps"), st.booleans()),
    st.tuples(st.just("note_peak"), st.integers(0, 50)),
)


class World:
    """A channel, its requests, and all they touch."""

    def __init__(self) -> None:
        self.requests = LiveRequests()
        self.channel: Any = Channel(self.requests, "stdio", lambda: (70, 80, 90))
        self.session = Session()
        self.raws: list[Any] = []
        self.items: list[Any] = [Shape() for _ in range(8)]

    def do(self, name: str, *given: Any) -> None:
        getattr(self, f"_{name}")(*given)

    def _raw(self, place: int) -> Any:
        return self.raws[place % len(self.raws)] if self.raws else None

    def _receive(self, message: Any, context: Context | None = None) -> None:
        known = set(self.requests.live)
        self.channel.received(Shape(message=message), context)
        self.raws += [raw for number, raw in self.requests.live.items() if number not in known]

    def _request(self, id: Any, method: str, name: Any, params: str, context: str) -> None:
        given = {"dict": {"name": name}, "mapping": Params(name=name), "none": None, "nameless": {}}[params]
        inside = None if context == "none" else Context()
        if inside is not None and context == "exchange":
            inside.run(EXCHANGE.set, an_exchange())
        self._receive(Request(id=id, method=method, params=given), inside)

    def _notification(self, method: str, inside: bool) -> None:
        self._receive(Notification(method=method, params=None), Context() if inside else None)

    def _answered(self, id: Any) -> None:
        self._receive(Result(id=id, result={}))

    def _oddity(self, message: bool) -> None:
        if message:
            self._receive(Other())
        else:
            assert self.channel.received(Exception("no message"), None) is None

    def _send(self, message: Any) -> None:
        item = Shape(message=message)
        self.items.append(item)
        self.channel.sending(item)

    def _result(self, id: Any, result: Any) -> None:
        self._send(Result(id=id, result=result))

    def _error(self, id: Any, code: Any) -> None:
        self._send(Error(id=id, error=Shape(code=code)))

    def _asks(self, id: Any, place: int) -> None:
        context = Context()
        if (raw := self._raw(place)) is not None:
            context.run(CURRENT.set, raw)
        context.run(self._send, Request(id=id, method="sampling/createMessage", params=None))

    def _taken(self, place: int) -> None:
        self.channel.taken(self.items[-1 - place])

    def _not_sent(self, place: int, number: int) -> None:
        if (raw := self._raw(number)) is not None:
            self.channel.not_sent(self.items[-1 - place], raw)

    def _handed_over(self, place: int) -> None:
        if (raw := self._raw(place)) is not None:
            self.channel.handed_over(raw)

    def _flushed(self) -> None:
        self.channel.flushed()

    def _ends(self, place: int, outcome: Any) -> None:
        if (raw := self._raw(place)) is not None:
            self.requests.end(raw, 500, outcome)

    def _settles(self, place: int) -> None:
        if (raw := self._raw(place)) is not None:
            self.requests.settle(raw, 600)

    def _writer_seen(self, value: bool) -> None:
        self.channel.writer_seen = value

    def _session(self, claimed: bool) -> None:
        self.channel.session = self.session if claimed else None

    def _stamps(self, seen: bool) -> None:
        self.channel.stamps = Stamps() if seen else None

    def _note_peak(self, unread: int) -> None:
        self.requests.note_peak(unread)


@given(st.lists(calls, max_size=40))
@settings(max_examples=400, deadline=None)
def test_whatever_comes_the_gauges_follow_from_the_requests(script: list[tuple[Any, ...]]) -> None:
    world = World()
    claimed = set()
    for call in script:
        world.do(*call)
        claimed |= {raw.id for raw in world.raws if raw.session is world.session}
        requests, alive = world.requests, [raw for raw in world.raws if not raw.ended]
        assert sorted(requests.live) == sorted(raw.id for raw in alive)
        assert requests.unwritten == sum(raw.result_ns is not None and raw.write_seen for raw in alive)
        assert requests.peak >= len(requests.live) and requests.unwritten_peak >= requests.unwritten
        assert all(not raw.ended or raw.end_ns is not None for raw in world.raws)
        ended = [raw.id for raw in world.raws if raw.ended]
        assert sorted(world.session.finished) == sorted(number for number in ended if number in claimed)
        assert requests.unclaimed == len(ended) - len(world.session.finished)
        assert all(raw.result_ns is None and not raw.ended for raw in world.channel.pending.values())
        assert all(len(raw.method) <= MAX_NAME and len(raw.name or "") <= MAX_NAME for raw in world.raws)


def test_an_answer_ends_its_request_at_the_flush_where_the_writer_is_seen() -> None:
    world = World()
    world.channel.writer_seen = True
    world.channel.stamps = Stamps()
    world.do("request", 1, "tools/call", "tool", "mapping", "plain")
    raw = world.raws[0]
    assert (raw.name, raw.arrival_ns, raw.arrival_earliest_ns, raw.request_bytes) == ("tool", 1_000, 900, 10)
    world.do("result", 1, {"isError": True})
    assert (raw.outcome, raw.error, raw.ended, world.requests.unwritten) == ("tool_error", "tool_error", False, 1)
    world.channel.taken(world.items[-1])
    assert (raw.ended, raw.write_taken_ns is not None) == (False, True)
    world.channel.flushed()
    assert (raw.ended, raw.flushed_ns, world.requests.unwritten, world.requests.live) == (True, raw.end_ns, 0, {})


def test_without_a_writer_a_request_ends_as_its_answer_is_handed_over() -> None:
    world = World()
    world.do("request", "a", "prompts/get", "prompt", "dict", "none")
    world.do("error", "a", -32603)
    raw = world.raws[0]
    world.channel.handed_over(raw)
    assert (raw.name, raw.outcome, raw.error_code, raw.ended) == ("prompt", "error", "-32603", True)
    assert (raw.transport_seen, raw.write_seen, raw.write_taken_ns) == (False, False, raw.result_ns)


def test_a_request_is_in_the_context_of_its_handler_and_of_no_other() -> None:
    world = World()
    inside = Context()
    world._receive(Request(id=1, method="ping", params=None), inside)
    assert inside[CURRENT] is world.raws[0] and CURRENT.get() is not world.raws[0]


def test_a_notification_that_names_a_tool_is_no_call_of_it() -> None:
    world = World()
    world._receive(Request(id=1, method="tools/call", params={"name": "add"}), None)
    world._receive(Notification(method="tools/call", params={"name": "add"}), None)
    assert [(raw.kind, raw.method, raw.name) for raw in world.raws] == [
        ("request", "tools/call", "add"),
        ("notification", "tools/call", None),
    ]


def test_what_an_exchange_brought_arrived_when_it_did_and_only_once() -> None:
    world = World()
    exchange = an_exchange()
    inside = Context()
    inside.run(EXCHANGE.set, exchange)
    world._receive(Request(id=1, method="ping", params=None), inside)
    world._receive(Notification(method="ping", params=None), inside)
    first, second = world.raws
    assert (first.arrival_ns, first.arrival_earliest_ns, first.request_bytes, first.write_seen) == (50, 40, 7, True)
    assert exchange.raw is first and second.arrival_ns == second.taken_ns and not second.transport_seen


def test_a_question_to_the_client_is_its_askers_wait() -> None:
    world = World()
    world.do("request", 1, "tools/call", "tool", "dict", "none")
    world.do("asks", 7, 0)
    world.do("answered", 7)
    [(asked, earliest, answered, read)] = world.raws[0].client_waits
    assert world.raws[0].taken_ns <= asked <= earliest == answered == read and world.channel.asked == {}


def test_an_answer_of_the_client_came_when_its_exchange_did() -> None:
    world = World()
    world.do("request", 1, "tools/call", "tool", "dict", "none")
    world.do("asks", 7, 0)
    raw, asked = world.channel.asked[7]
    inside = Context()
    inside.run(EXCHANGE.set, Exchange(asked + 40, Came(asked + 30, asked + 20), 7))  # type: ignore[arg-type]
    world._receive(Result(id=7, result={}), inside)
    [(began, earliest, answered, read)] = raw.client_waits
    assert (began, earliest, answered) == (asked, asked + 20, asked + 30)
    assert read > answered


def test_two_threads_that_end_one_request_end_it_once() -> None:
    world = World()
    world.channel.session = world.session
    world.do("request", 1, "ping", None, "none", "none")
    raw = world.raws[0]
    assert [raw.end_at(500), raw.end_at(600)] == [True, False]
    world.requests.end(raw, 700)
    assert (raw.end_ns, world.session.finished) == (500, [])


class Fault(Exception):
    """Raised by what a test broke."""


class Broken:
    """Anything of it that is asked for raises."""

    def __getattr__(self, name: str) -> Any:
        raise Fault(name)


@pytest.mark.parametrize("breaks", ["received", "message", "sending", "error"])
def test_a_fault_comes_out_to_the_hook_that_guards_it(breaks: str) -> None:
    world = World()
    world.do("request", 1, "ping", None, "none", "none")
    with pytest.raises(Fault):
        if breaks == "received":
            world.channel.received(Broken(), None)
        elif breaks == "message":
            world.channel.received(Shape(message=Broken()), None)
        elif breaks == "sending":
            world.channel.sending(Broken())
        else:
            world.channel.sending(Shape(message=Error(id=1, error=Broken())))


def test_a_channel_and_its_requests_in_a_cycle_are_collected() -> None:
    gc.collect()
    world = World()
    world.do("request", 1, "ping", None, "none", "plain")
    gone = [weakref.ref(one) for one in (world.channel, world.requests, world.raws[0])]
    del world
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]


# --- mcp 1.x: a message in a model of its own, no context that reaches its handler --------------------------


class Root(Shape):
    """A message as mcp 1.x wraps it."""


class Envelope(Shape):
    """What its streams carry since 1.8; before, the message itself."""


@pytest.fixture(params=["1.6", "1.30"])
def wrap(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def wrapped(message: Any) -> Any:
        root = Root(root=message)
        return root if request.param == "1.6" else Envelope(message=root)

    return wrapped


def old_world(*, attached: bool = True) -> World:
    world = World()
    world.channel.handed = {}
    world.channel.session = world.session if attached else None
    return world


def test_a_wrapped_request_is_handed_to_the_session_and_ended_by_its_answer(wrap: Callable[[Any], Any]) -> None:
    world = old_world()
    item = wrap(Request(id=1, method="tools/call", params={"name": "tool"}))
    world.channel.received(item, None)
    [raw] = world.requests.live.values()
    assert (raw.operation, raw.request_id, world.channel.handed) == ("tool", 1, {id(item): raw})
    answer = wrap(Result(id=1, result={"isError": True}))
    assert world.channel.sending(answer) is raw
    world.channel.handed_over(raw)
    assert (raw.outcome, raw.ended, world.requests.live) == ("tool_error", True, {})


def test_what_initialize_negotiates_is_the_channels_version(wrap: Callable[[Any], Any]) -> None:
    world = old_world()
    world.channel.received(wrap(Request(id=1, method="initialize", params={})), None)
    [raw] = world.requests.live.values()
    result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "shop", "version": "1"}}
    world.channel.sending(wrap(Result(id=1, result=result)))
    assert raw.protocol_version == world.channel.protocol_version == "2025-06-18"
    assert world.session.name == "shop"


def test_a_request_that_gets_no_handler_is_told_of_before_its_answer(wrap: Callable[[Any], Any]) -> None:
    world = old_world()
    told: list[tuple[Any, bool, Any]] = []
    world.channel.rejects = lambda raw, error: told.append((raw, raw.result_ns is None, error.code))
    world.channel.received(wrap(Request(id=1, method="nobody/knows", params=None)), None)
    [raw] = world.requests.live.values()
    world.channel.sending(wrap(Error(id=1, error=Shape(code=-32602))))
    assert told == [(raw, True, -32602)] and raw.error_code == "-32602"


def test_the_answer_to_a_cancelled_request_says_cancelled(wrap: Callable[[Any], Any]) -> None:
    world = old_world()
    world.channel.received(wrap(Request(id=1, method="tools/call", params={"name": "tool"})), None)
    [raw] = world.requests.live.values()
    raw.first_step_ns, raw.outcome = raw.taken_ns, "cancelled"
    world.channel.sending(wrap(Error(id=1, error=Shape(code=0))))
    world.channel.handed_over(raw)
    assert (raw.outcome, raw.error, raw.ended) == ("cancelled", None, True)


def test_nothing_stays_of_a_server_that_is_not_attached(wrap: Callable[[Any], Any]) -> None:
    world = old_world(attached=False)
    world.channel.received(wrap(Notification(method="notifications/initialized", params=None)), None)
    world.channel.received(wrap(Request(id=1, method="ping", params=None)), None)
    world.channel.close()
    assert (world.requests.live, world.channel.handed, world.channel.pending) == ({}, {}, {})


def test_a_session_that_ends_cancels_what_it_has_not_begun(wrap: Callable[[Any], Any]) -> None:
    world = old_world()
    for number in (1, 2):
        world.channel.received(wrap(Request(id=number, method="ping", params=None)), None)
    first, second = world.requests.live.values()
    first.first_step_ns = first.taken_ns
    world.channel.close()
    assert (first.ended, second.ended, second.outcome) == (False, True, "cancelled")


# --- SSE: answers leave as events on another exchange ---------------------------


def event(id: Any, body: str = '"result":{}', ends: str = "\r\n") -> bytes:
    return f'event: message{ends}data: {{"jsonrpc":"2.0","id":{json.dumps(id)},{body}}}{ends}{ends}'.encode()


def streaming() -> tuple[World, Any]:
    world = old_world()
    world.channel.writer_seen, world.channel.events = True, {}
    exchange = an_exchange()
    exchange.answers = False
    inside = Context()
    inside.run(EXCHANGE.set, exchange)
    world._receive(Request(id='a"1', method="tools/call", params={"name": "tool"}), inside)
    return world, world.raws[0]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_an_answer_ends_its_request_as_its_event_was_sent(ends: str) -> None:
    world, raw = streaming()
    world.channel.sending(Shape(message=Result(id='a"1', result={})))
    for other in (b": ping\r\n\r\n", b"event: endpoint\r\ndata: /messages", event(7), event(3, '"method":"ping"')):
        assert world.channel.event_begins(other) is None
    chunk = event('a"1', ends=ends)
    assert world.channel.event_begins(chunk) is raw and not raw.ended
    world.channel.event_sent(raw)
    assert (raw.ended, raw.response_bytes, raw.flushed_ns, world.requests.unwritten) == (
        True,
        len(chunk),
        raw.end_ns,
        0,
    )


@pytest.mark.parametrize("before", [b"", b"id: 7\r\n", b"id: 7\r\nevent: message\r\n", b"retry: 9\nevent: message\n"])
def test_an_answer_is_told_from_other_events_of_its_stream(before: bytes) -> None:
    said = {
        b'{"jsonrpc":"2.0","id":"a\\"1","result":{"method":"x"}}': b'"a\\"1"',
        b'{"jsonrpc":"2.0","id":-7,"error":{"code":1}}': b"-7",
        b'{"method":"notifications/message","params":{"data":"x"},"jsonrpc":"2.0"}': None,
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":1}}': None,
        b'{"method":"sampling/createMessage","params":{},"jsonrpc":"2.0","id":0}': None,
        b"": None,
    }
    assert {data: answer_in(before + b"data: " + data + b"\r\n\r\n") for data in said} == said
    assert answer_in(b": ping - 2026-11-28\r\n\r\n") is None


def test_an_event_of_unknown_form_is_a_fault_and_loses_no_request() -> None:
    world, raw = streaming()
    world.channel.sending(Shape(message=Result(id='a"1', result={})))
    with pytest.raises(ValueError, match="unknown form"):
        world.channel.event_begins(b'event: message\r\ndata: {"id":1}')
    world.channel.no_more_events()
    assert (raw.ended, raw.outcome, raw.write_seen, world.requests.unwritten) == (True, "ok", False, 0)


def test_a_client_that_goes_away_cancels_the_answers_on_their_way() -> None:
    world, raw = streaming()
    world.channel.sending(Shape(message=Result(id='a"1', result={})))
    world.channel.close()
    assert (raw.ended, raw.outcome, world.requests.live) == (True, "cancelled", {})


@pytest.mark.parametrize(
    ("params", "given_up"),
    [
        ({"requestId": 1}, True),
        (Params(requestId=1), True),
        ({"requestId": "1"}, False),
        ({"requestId": [1]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_what_a_client_cancels_runs_for_nobody_from_then_on(
    wrap: Callable[[Any], Any], params: Any, given_up: bool
) -> None:
    world = old_world()
    world.channel.received(wrap(Request(id=1, method="tools/call", params={"name": "tool"})), None)
    [raw] = world.requests.live.values()
    job = Job(None, raw, "tool", 1)
    raw.jobs = [job]
    world.channel.received(wrap(Notification(method="notifications/cancelled", params=params)), None)
    assert (job.unwanted_ns is not None) is given_up


@pytest.mark.parametrize(("outcome", "given_up"), [("ok", False), ("cancelled", True), ("tool_error", True)])
def test_jobs_of_a_call_that_failed_run_for_nobody_from_its_result_on(outcome: Any, given_up: bool) -> None:
    requests = LiveRequests()
    raw = requests.open("request", "tools/call", "tool", "stdio")
    job = Job(None, raw, "tool", 1)
    raw.jobs, raw.result_ns = [job], 70
    requests.end(raw, 100, outcome)
    assert job.unwanted_ns == (70 if given_up else None)


# --- when nobody waits any more ---------------------------------------------------


@pytest.mark.parametrize(
    ("gave_up_ns", "ended_ns", "outcome", "gone"),
    [
        (None, None, "unfinished", None),
        (None, 500, "unfinished", 500),
        (None, 500, "cancelled", 500),
        (None, 500, "ok", None),  # answered: whoever has closed the pipe may read on
        (300, 500, "ok", 300),
        (700, 500, "cancelled", 500),
        (None, 50, "unfinished", 100),  # its pipe was closed at once: it had come by then
    ],
)
def test_a_client_waits_until_it_gives_up_or_leaves_without_an_answer(
    gave_up_ns: int | None, ended_ns: int | None, outcome: Any, gone: int | None
) -> None:
    world = World()
    world.channel.stamps = LineStamps(0)
    world._request("1", "tools/call", "tool", "dict", "own")
    (raw,) = world.raws
    raw.arrival_ns, raw.outcome, raw.gone_ns, world.channel.stamps.ended_ns = 100, outcome, gave_up_ns, ended_ns
    assert gone_ns(raw) == gone


def test_a_request_is_given_up_as_its_cancellation_arrived() -> None:
    world = World()
    world._request(7, "tools/call", "tool", "dict", "own")
    (raw,) = world.raws
    before = now_ns()
    world._receive(Notification(method="notifications/cancelled", params={"requestId": 7}))
    assert before <= raw.gone_ns <= now_ns() and not raw.ended
