"""Desk and Channel in C and in Python: the same messages make the same requests, gauges and answers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from contextvars import Context
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.capture.current import CURRENT, EXCHANGE
from mcp_probe.capture.queueing import MAX_NAME, Channel, Desk, PythonChannel, PythonDesk
from tests.native.twins import needs_the_accelerator, shown

pytestmark = needs_the_accelerator

_OWN = ("_arrived_by", "_answered", "_asking")


class PythonOnlyDesk(PythonDesk):
    """``Desk`` on the Python twin."""

    settle = Desk.settle


class PythonOnlyChannel(PythonChannel):
    """``Channel`` on the Python twin."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: dict[Any, Any] = {}


for _name in _OWN:
    setattr(PythonOnlyChannel, _name, vars(Channel)[_name])


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

    def finish(self, raw: Any) -> None:
        self.finished.append(raw.id)


class Stamps:
    """Lines of a transport: three known ones, then none."""

    def __init__(self) -> None:
        self.left = [(1_000, 900, 10), (2_000, 2_000, 20), (3_000, 3_000, 30)]
        self.waiting = [1, 2]

    def consumed(self) -> Any:
        return self.left.pop(0) if self.left else None


class Exchange:
    """An HTTP exchange that brought a message."""

    def __init__(self) -> None:
        self.raw = None
        self.arrival_ns, self.arrival_earliest_ns, self.body_bytes = 50, 40, 7


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
INSTANTS = [
    "arrival_ns",
    "arrival_earliest_ns",
    "taken_ns",
    "result_ns",
    "write_taken_ns",
    "flushed_ns",
    "end_ns",
    "decode_ns",
    "client_waits",
]


class World:
    """A desk and a channel on one of the twins, and all they touch."""

    def __init__(self, desk: Any, channel: Any) -> None:
        self.desk = desk()
        self.channel = channel(self.desk, "stdio", lambda: (70, 80, 90))
        self.session = Session()
        self.raws: list[Any] = []
        self.items: list[Any] = [Shape() for _ in range(8)]
        self.returned: list[Any] = []

    def do(self, name: str, *given: Any) -> None:
        getattr(self, f"_{name}")(*given)

    def _raw(self, place: int) -> Any:
        return self.raws[place % len(self.raws)] if self.raws else None

    def _receive(self, message: Any, context: Context | None = None) -> None:
        known = set(self.desk.live)
        self.returned.append(self.channel.received(Shape(message=message), context) is context)
        self.raws += [raw for number, raw in self.desk.live.items() if number not in known]
        if context is not None and self.raws:
            current = context.get(CURRENT)
            self.returned.append(None if current is None else current.id)

    def _request(self, id: Any, method: str, name: Any, params: str, context: str) -> None:
        given = {"dict": {"name": name}, "mapping": Params(name=name), "none": None, "nameless": {}}[params]
        inside = None if context == "none" else Context()
        if inside is not None and context == "exchange":
            inside.run(EXCHANGE.set, Exchange())  # type: ignore[arg-type]
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
        answers = self.channel.sending(item)
        self.returned.append(None if answers is None else answers.id)

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
            self.desk.end(raw, 500, outcome)

    def _settles(self, place: int) -> None:
        if (raw := self._raw(place)) is not None:
            self.desk.settle(raw, 600)

    def _writer_seen(self, value: bool) -> None:
        self.channel.writer_seen = value

    def _session(self, claimed: bool) -> None:
        self.channel.session = self.session if claimed else None

    def _stamps(self, seen: bool) -> None:
        self.channel.stamps = Stamps() if seen else None

    def _note_peak(self, unread: int) -> None:
        self.desk.note_peak(unread)

    def _breaks(self, part: str) -> None:
        setattr(self.channel, part, Broken())

    def seen(self) -> Any:
        desk, channel = self.desk, self.channel
        gauges = (desk.peak, desk.unwritten, desk.unwritten_peak, desk.unclaimed, desk.overflow, sorted(desk.live))
        writing = None if channel.writing is None else channel.writing.id
        pending = {id: raw.id for id, raw in channel.pending.items()}
        sent = sorted(raw.id for raw in channel.sent.values())
        asked = {id: raw.id for id, (raw, _) in channel.asked.items()}
        raws = [told(raw, self) for raw in self.raws]
        return gauges, writing, pending, sent, asked, raws, self.session.finished, self.returned


def told(raw: Any, world: World) -> dict[str, Any]:
    """All of a request that the two worlds can have in common: instants only where they were given."""
    fields = shown(raw)
    fields["channel"] = raw.channel is world.channel
    fields["session"] = raw.session is world.session
    for name in INSTANTS:
        value = fields[name]
        fields[name] = value if isinstance(value, int) and value < 10_000 else bool(value)
    return fields


@given(st.lists(calls, max_size=40))
@settings(max_examples=400, deadline=None)
def test_the_same_messages_make_the_same(script: list[tuple[Any, ...]]) -> None:
    python, accelerated = World(PythonOnlyDesk, PythonOnlyChannel), World(Desk, Channel)
    for call in script:
        python.do(*call)
        accelerated.do(*call)
        assert python.seen() == accelerated.seen(), call


class Fault(Exception):
    """Raised by what a test broke."""


class Broken:
    """Anything of it that is asked for raises."""

    def __getattr__(self, name: str) -> Any:
        raise Fault(name)


@pytest.mark.parametrize(
    "fails",
    [
        lambda world: world.channel.received(Broken(), None),
        lambda world: world.channel.received(Shape(message=Broken()), None),
        lambda world: world.channel.sending(Broken()),
        lambda world: (world.do("breaks", "stamps"), world.do("notification", "x", False)),
        lambda world: (world.do("breaks", "stamps"), world.do("answered", 1)),
        lambda world: (
            world.do("breaks", "session"),
            world.do("request", 1, "ping", None, "none", "none"),
            world.do("ends", 0, None),
        ),
        lambda world: (
            world.do("request", 1, "ping", None, "none", "none"),
            world.channel.sending(Shape(message=Error(id=1, error=Broken()))),
        ),
    ],
)
def test_a_fault_comes_out_of_both(fails: Any) -> None:
    for world in (World(PythonOnlyDesk, PythonOnlyChannel), World(Desk, Channel)):
        with pytest.raises(Fault):
            fails(world)


@pytest.mark.parametrize(
    "call",
    [
        lambda world: world.channel.received(1),
        lambda world: world.channel.not_sent(1),
        lambda world: world.channel.handed_over("no request"),
        lambda world: world.channel.forget("no request"),
        lambda world: world.desk.end("no request", 1),
        lambda world: world.desk.open(1),
        lambda world: world.desk.note_peak("x"),
        lambda world: setattr(world.channel, "track", "no track"),
        lambda world: Channel("no desk", "stdio", len),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_refused(call: Any) -> None:
    with pytest.raises(TypeError):
        call(World(Desk, Channel))


def test_a_channel_and_its_requests_in_a_cycle_are_collected() -> None:
    gc.collect()
    world = World(Desk, Channel)
    world.do("request", 1, "ping", None, "none", "plain")
    gone = [weakref.ref(one) for one in (world.channel, world.desk, world.raws[0])]
    del world
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
