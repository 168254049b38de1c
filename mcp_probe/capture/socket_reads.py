"""Reading from sockets: when did the bytes of an HTTP request come?

A request waits in its socket while the loop is blocked, and on a new connection before it is accepted. Linux knows when
the last segment of a connection came (``TCP_INFO``), to a tick of its clock. Each read is stamped where the server
hands it to its parser. A request arrives with its last byte, so the stamp is exact to a tick if that byte was the last
one on the connection. Otherwise the request came since the connection was last known to be empty.

Source: struct tcp_info in Linux' include/uapi/linux/tcp.h, tcp_get_info() in net/ipv4/tcp.c, 4.6-6.18. gVisor fills in
zeros (pkg/sentry/socket/netstack/netstack.go).
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from mcp_probe.capture.guard import Guard
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS

try:
    from fcntl import ioctl
    from termios import FIONREAD
except ImportError:  # Windows
    ioctl = None  # type: ignore[assignment]

_INFO = struct.Struct("=52xI4xI64xQ16xI")  # tcpi_last_data_recv (ms), tcpi_pmtu, tcpi_bytes_received, tcpi_data_segs_in
_INFO_BYTES, _unpack = _INFO.size, _INFO.unpack
_NOTHING = b"\0\0\0\0"
_CLOCK_MONOTONIC_COARSE = 6  # its resolution is the kernel's tick

MAX_UNPAUSED_BYTES = 65_536
"""A server may stop reading during a body that is longer (HIGH_WATER_LIMIT in uvicorn/protocols/http/flow_control.py):
then a poll that found nothing does not say that nothing had come."""


def _tick_ns() -> int | None:
    """How far the kernel's stamp may be off; ``None`` where it has none."""
    if sys.platform != "linux":
        return None
    try:
        tick = round(time.clock_getres(_CLOCK_MONOTONIC_COARSE) * 1e9)
    except (AttributeError, OSError):
        tick = 10_000_000  # HZ=100, the longest that kernels are built with
    return tick if tick % 1_000_000 == 0 else tick + 1_000_000  # told in whole ms


TICK_NS = _tick_ns()


Segment = tuple[int, int, int, int]
"""The last one with data: (when it came at the earliest, at the latest, how many came so far, how many bytes)."""


def last_segment(sock: Any) -> Segment | None:
    """``None`` where the kernel does not say: no TCP, not Linux, a kernel that leaves it out, or no socket at all."""
    if TICK_NS is None:
        return None
    before = now_ns()
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except (OSError, AttributeError):  # a transport of the server's own may have none
        return None
    after = now_ns()
    if len(info) < _INFO_BYTES:
        return None
    ago_ms, path_mtu, received, number = _unpack(info)
    if not path_mtu:  # filled in by each kernel that fills in the times
        return None
    latest = after - ago_ms * 1_000_000 + TICK_NS
    return before - ago_ms * 1_000_000 - TICK_NS, latest if latest < after else after, number, received


def _is_empty(sock: Any) -> bool:
    """Whether nothing waits in ``sock``; false where the platform cannot tell."""
    if ioctl is None:
        return False
    try:
        return ioctl(sock.fileno(), FIONREAD, _NOTHING) == _NOTHING
    except (OSError, AttributeError):
        return False


def readable_since(sock: Any) -> int | None:
    """``sock`` has had something to read at least since then; ``None`` where the kernel does not say.

    Its last segment with data is unread, since something is. What ended the connection, or bytes before, may have made
    it readable earlier.
    """
    if _is_empty(sock):
        return None  # it was closed, and that is no data
    segment = last_segment(sock)
    return None if segment is None else segment[1]


class Delivery:
    """One request on its way in: when the last byte of it that was read had come, between its bounds."""

    __slots__ = (
        "_is_loose",
        "_latest_ns",
        "_reads",
        "_since_ns",
        "claims",
        "earliest_ns",
        "is_first",
        "read_bytes",
        "whole",
    )

    def __init__(self, reads: SocketReads, since_ns: int | None) -> None:
        self.is_first = reads.delivery is None  # of its connection
        self._reads = reads
        self._since_ns = since_ns  # all of its bytes came later; None: unknown
        self._is_loose = False
        self._latest_ns = 0
        self.earliest_ns = since_ns
        self.whole = False  # the last read had one segment: what else was in it came with it
        self.read_bytes = 0
        self.claims = 0  # requests that were found in it

    def read(self, latest_ns: int, earliest_ns: int | None, read_bytes: int, *, whole: bool) -> None:
        """More bytes of the request were read."""
        self._latest_ns = latest_ns
        self.earliest_ns = earliest_ns
        self.whole = whole
        self.read_bytes += read_bytes

    @property
    def is_loose(self) -> bool:
        """Whether bytes of other requests are known to have come along."""
        return self._is_loose or self.claims > 1

    def arrival(self) -> tuple[int, int | None]:
        """When the request came, at the latest and at the earliest (``None``: unknown). Call it once it is complete."""
        reads = self._reads
        if not reads.guard.active:  # a read may have been missed
            return now_ns(), None
        if reads.has_more():
            self._is_loose = True
        if self.claims > 1:  # it was started after another one; its bytes are in this read, or in a later one
            return reads.latest_ns, self._since_ns
        if reads.interleaves and reads.delivery is not self:  # its last byte may be in any read since
            return reads.latest_ns, self.earliest_ns if self.whole else self._since_ns
        if self._is_loose and not self.whole:
            return self._latest_ns, self._since_ns
        return self._latest_ns, self.earliest_ns


class SocketReads:
    """The reads of one connection. Loop's thread only.

    ``has_more``: whether the server has bytes beyond the request that it serves.
    """

    __slots__ = ("_bytes", "_empty_ns", "_segments", "delivery", "guard", "has_more", "interleaves", "latest_ns")

    def __init__(self, guard: Guard, has_more: Callable[[], bool]) -> None:
        self.guard = guard
        self.has_more = has_more
        self.latest_ns = 0  # when what was read last had come, at the latest
        self.delivery: Delivery | None = None
        self.interleaves = False  # pieces of several requests come in turn (HTTP/2)
        self._empty_ns: int | None = None  # all that had come was with the server; None: not known
        self._segments: int | None = None  # that had come by then
        self._bytes: int | None = None

    def read(
        self,
        sock: Any,
        read_bytes: int,
        polled_ns: int | None,
        *,
        goes_on: bool = False,
        is_plain: bool = True,
        held: bool = False,
        is_partial: bool = False,
    ) -> Delivery:
        """Bytes were read from ``sock``, and are about to be parsed.

        Args:
            polled_ns: what this read brought came later, if the socket has been polled since the last read.
            goes_on: the request of the last read is not complete.
            is_plain: the server gets them as they came, not deciphered.
            held: other bytes have left the socket, and the server will get them later.
            is_partial: a part of a TLS record may have left the socket.
        """
        segment = last_segment(sock)
        now = now_ns()
        since, delivery = self._since(polled_ns, now if segment is None else segment[1]), self.delivery
        if delivery is None or not goes_on:
            delivery = self.delivery = Delivery(self, since)
        earliest, latest, number, received = (since, now, None, None) if segment is None else segment
        if is_plain and self._bytes is not None and received == self._bytes + read_bytes:
            drained = True  # saves a system call
        else:
            drained = not held and _is_empty(sock)
        whole = drained and number is not None and self._segments is not None and number == self._segments + 1
        if not whole and (is_partial or not drained):
            earliest = since  # it says when other bytes came
        elif earliest is not None and since is not None and earliest < since:
            earliest = since
        if since is not None and latest < since:
            latest = since
        if earliest is not None and latest - earliest < RING_NS:
            earliest = latest
        self.latest_ns = latest
        delivery.read(latest, earliest, read_bytes, whole=whole)
        if drained:
            self._empty_ns, self._segments, self._bytes = now, number, received
        else:
            self._segments = self._bytes = None
        return delivery

    def _since(self, polled_ns: int | None, latest_ns: int) -> int | None:
        """What is read now came later than this; ``None``: unknown."""
        since, last = self._empty_ns, self.delivery
        if since is None or polled_ns is None or last is None or polled_ns > latest_ns:
            return since
        was_polled = (self.interleaves or not last.is_loose) and last.read_bytes <= MAX_UNPAUSED_BYTES
        return max(since, polled_ns) if was_polled else since
