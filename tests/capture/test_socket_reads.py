"""When a request came, from what a socket says: kernels that say little, and bytes of others."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

import pytest

from mcp_probe.capture import socket_reads
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.socket_reads import SocketReads, last_segment, readable_since
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS

MS = 1_000_000
TICK_NS = 4 * MS


class Socket:
    """What the kernel says of a connection."""

    def __init__(self) -> None:
        self.ago_ms = 0
        self.mtu = 1500
        self.segments = 1
        self.bytes = 0
        self.unread = 0
        self.is_tcp = True

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        if not self.is_tcp:
            raise OSError(errno.EOPNOTSUPP, "no TCP")
        info = bytearray(size)
        struct.pack_into("=I", info, 52, self.ago_ms)
        struct.pack_into("=I", info, 60, self.mtu)
        struct.pack_into("=Q", info, 128, self.bytes)
        struct.pack_into("=I", info, 152, self.segments)
        return bytes(info)


class World:
    """One connection, on a clock that stands still unless it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10_000 * MS
        self.socket = Socket()
        self.more = False
        self.guard = Guard("reads", lambda hook, exc: None)
        self.reads = SocketReads(self.guard, lambda: self.more)
        monkeypatch.setattr(socket_reads, "TICK_NS", TICK_NS)
        monkeypatch.setattr(socket_reads, "now_ns", lambda: self.now)
        monkeypatch.setattr(socket_reads, "_is_empty", lambda sock: sock.unread == 0)

    def read(self, *, ago_ms: int = 0, segments: int = 1, polled_ns: int | None = None, **how: Any) -> Any:
        """100 bytes in ``segments`` segments, the last of which came ``ago_ms`` ago."""
        self.socket.ago_ms = ago_ms
        self.socket.segments += segments
        self.socket.bytes += 100
        return self.reads.read(self.socket, 100, polled_ns, **how)

    def ago(self, delivery: Any) -> tuple[float, float | None]:
        """How long before now it came, in ms: (at least, at most)."""
        latest, earliest = delivery.arrival()
        return (self.now - latest) / MS, None if earliest is None else (self.now - earliest) / MS


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_new_connection_is_known_by_its_last_segment(world: World) -> None:
    assert world.ago(world.read(ago_ms=400)) == (396, 404)


def test_what_has_just_come_came_no_later_than_now(world: World) -> None:
    assert world.ago(world.read()) == (0, 4)


def test_the_poll_that_found_it_makes_it_exact(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    assert world.ago(world.read(polled_ns=world.now - RING_NS // 2)) == (0, 0)


def test_the_first_poll_of_a_connection_says_nothing(world: World) -> None:
    assert world.ago(world.read(ago_ms=400, polled_ns=world.now - MS)) == (396, 404)


def test_a_poll_that_the_kernel_contradicts_says_nothing(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=400, polled_ns=world.now - MS)) == (396, 404)


def test_a_poll_after_a_long_body_says_nothing(world: World) -> None:
    for _ in range(700):
        world.read(goes_on=True)
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=8, polled_ns=world.now - 5 * MS)) == (4, 12)


@pytest.mark.parametrize("kernel", ["fills in nothing", "no TCP", "too old"])
def test_without_the_kernels_word_it_came_since_the_connection_was_empty(world: World, kernel: str) -> None:
    if kernel == "fills in nothing":
        world.socket.mtu = 0
    elif kernel == "no TCP":
        world.socket.is_tcp = False
    else:
        world.socket.getsockopt = lambda *_: bytes(104)  # type: ignore[method-assign]
    assert world.ago(world.read()) == (0, None)
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=400)) == (0, 1000)


def test_unread_bytes_may_be_what_came_last(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    world.socket.bytes, world.socket.unread = 50, 50
    assert world.ago(world.read(ago_ms=400, segments=2)) == (396, 1000)
    world.now += 10 * MS
    world.socket.unread = 0
    assert world.ago(world.read(ago_ms=410, segments=0)) == (406, 414), "its last byte is that segment's"


def test_pipelined_requests_came_at_any_time_unless_one_segment_brought_them(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    world.more = True
    assert world.ago(world.read(ago_ms=400)) == (396, 404)
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=400, segments=2)) == (396, 1000)


def test_a_request_that_is_started_after_another_came_with_it_or_since(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    first = world.read(ago_ms=400)
    first.claims = 1
    world.now += 100 * MS
    world.read(ago_ms=50)
    first.claims = 2
    assert world.ago(first) == (46, 1100)


def test_the_last_byte_of_an_interleaved_request_is_in_any_read_since_its_first(world: World) -> None:
    world.reads.interleaves = world.more = True
    world.read()
    world.now += 1000 * MS
    headers = world.read(ago_ms=400)
    assert world.ago(headers) == (396, 404), "one segment brought all of it"
    world.now += 300 * MS
    assert world.read(ago_ms=100) is not headers
    assert world.ago(headers) == (96, 704)
    world.now += 1000 * MS
    several = world.read(ago_ms=400, segments=2)
    world.now += 300 * MS
    world.read(ago_ms=100)
    assert world.ago(several) == (96, 1300), "since the connection was last empty"


def test_the_second_piece_of_a_request_is_when_it_came(world: World) -> None:
    world.read()
    world.now += 1000 * MS
    first = world.read(ago_ms=400)
    world.now += 300 * MS
    second = world.read(ago_ms=100, goes_on=True)
    assert second is first
    assert world.ago(first) == (96, 104)
    world.now += 100 * MS
    assert world.read() is not first, "the next request is not delivered with it"


def test_a_part_of_a_record_may_be_what_came_last(world: World) -> None:
    world.read(is_plain=False)
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=400, segments=2, is_plain=False, is_partial=True)) == (396, 1000)
    world.now += 1000 * MS
    assert world.ago(world.read(ago_ms=400, is_plain=False, is_partial=True)) == (396, 404), "one segment brought it"


def test_what_was_read_while_the_hook_is_off_is_not_known(world: World) -> None:
    delivery = world.read(ago_ms=400)
    world.guard.active = False
    assert world.ago(delivery) == (0, None)


def test_a_segment_of_a_real_connection_was_just_now() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            before = now_ns()
            client.sendall(b"x")
            accepted.recv(1)
            segment = last_segment(accepted)
            after = now_ns()
    if segment is None:
        pytest.skip("this kernel does not say")
    earliest, latest, number, received = segment
    assert earliest < after
    assert before < latest <= after
    assert (number, received) == (1, 1)


@pytest.mark.parametrize("sock", [None, object()])
def test_a_transport_without_a_socket_says_nothing_and_does_no_harm(sock: Any) -> None:
    faults: list[Exception] = []
    reads = SocketReads(Guard("reads", lambda hook, exc: faults.append(exc)), lambda: False)
    before = now_ns()
    latest, earliest = reads.read(sock, 100, None, goes_on=False).arrival()
    assert before <= latest <= now_ns()
    assert earliest is None
    assert faults == []


def test_unread_data_were_readable_since_the_last_of_them_at_the_latest(world: World) -> None:
    world.socket.unread, world.socket.ago_ms = 10, 80
    assert readable_since(world.socket) == world.now - 76 * MS


def test_a_connection_that_was_closed_says_nothing_of_when(world: World) -> None:
    """Its last data came long before, and were read."""
    world.socket.ago_ms = 80
    assert readable_since(world.socket) is None


def test_a_socket_that_is_no_tcp_says_nothing_of_when(world: World) -> None:
    world.socket.unread, world.socket.is_tcp = 10, False
    assert readable_since(world.socket) is None
