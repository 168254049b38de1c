"""The child's end of the channel, against a listener that this test controls."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.launch.channel import ChannelSink
from mcp_probe.model import ProcessSample
from mcp_probe.record.file import decode_lines, encode, preamble
from tests.frames import make_header, make_process, make_request

HEADER, PROCESS = encode(make_header()), encode(make_process())
REQUEST = encode(make_request())


@pytest.fixture
def address() -> Iterator[Path]:
    """A short path: names of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-test-") as folder:
        yield Path(folder, "channel")


@pytest.fixture
def listener(address: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(address))
        listening.listen()
        listening.settimeout(100)
        yield listening


def read_all(listener: socket.socket) -> bytes:
    """Everything the next connection sends until it hangs up."""
    peer, _ = listener.accept()
    peer.settimeout(100)
    with peer, peer.makefile("rb") as stream:
        return stream.read()


def test_preamble_comes_first_and_lines_follow_unchanged(address: Path, listener: socket.socket) -> None:
    sink = ChannelSink(str(address))
    sink.write([HEADER, REQUEST])
    sink.write([PROCESS])
    sink.close()
    assert read_all(listener) == preamble() + HEADER + REQUEST + PROCESS


def test_nothing_connects_before_the_first_line(address: Path, listener: socket.socket) -> None:
    sink = ChannelSink(str(address))
    sink.write([])
    sink.close()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_parent_that_is_not_there_is_no_error(address: Path) -> None:
    sink = ChannelSink(str(address))
    sink.write([HEADER])
    sink.write([REQUEST])
    sink.close()


def test_a_parent_that_goes_away_is_no_error(address: Path, listener: socket.socket) -> None:
    sink = ChannelSink(str(address))
    sink.write([HEADER])
    listener.accept()[0].close()
    for _ in range(3):
        sink.write([REQUEST])
    sink.close()


def test_frames_a_slow_parent_could_not_take_are_counted_in_the_next_sample(
    address: Path, listener: socket.socket
) -> None:
    sink = ChannelSink(str(address), pending_limit_bytes=10 * len(REQUEST))
    sink.write([HEADER])
    peer, _ = listener.accept()
    many = 4_000_000 // len(REQUEST)  # far more than any socket buffer
    for _ in range(many):
        sink.write([REQUEST])
    sink.write([PROCESS])
    received = bytearray()
    reader = threading.Thread(target=lambda: received.extend(peer.makefile("rb").read()))
    reader.start()
    # A close waits only so long; the reader may need several.
    while sink._pending:
        sink.write([REQUEST])
    sink.write([PROCESS])
    sink.close()
    reader.join(20)
    peer.close()
    lines = bytes(received).splitlines(keepends=True)
    frames = list(decode_lines(lines, "test"))
    lost = sum(count for frame in frames if isinstance(frame, ProcessSample) for _, count in frame.dropped)
    assert lost > 0
    assert received.count(b'["request"') + lost >= many
    assert received.count(b'["process"') == 2


def test_a_parent_that_never_reads_is_waited_for_once(
    address: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def never_writable(connection: socket.socket, deadline: float) -> bool:
        waits.append(deadline)
        return False

    monkeypatch.setattr("mcp_probe.launch.channel._writable", never_writable)
    monkeypatch.setattr("mcp_probe.launch.channel.time.monotonic", lambda: 1000.0)
    sink = ChannelSink(str(address))
    for _ in range(40):
        sink.write([REQUEST * 1000])
    assert [deadline for deadline in waits if deadline > 1000.0] == [1000.25]
    assert len(waits) > 2
    sink.close()


def test_a_descriptor_that_the_program_closed_and_reused_is_left_alone(address: Path, listener: socket.socket) -> None:
    sink = ChannelSink(str(address))
    sink.write([HEADER])
    assert sink._socket is not None
    number = sink._socket.fileno()
    theirs, other_end = socket.socketpair()
    with theirs, other_end:
        os.dup2(theirs.fileno(), number)
        sink.write([REQUEST])
        sink.close()
        os.write(number, b"the program's own")
        assert other_end.recv(4096) == b"the program's own"
    os.close(number)
    assert read_all(listener) == preamble() + HEADER


def test_standard_streams_numbers_are_never_taken(address: Path, listener: socket.socket) -> None:
    kept = os.dup(0)
    os.close(0)
    try:
        sink = ChannelSink(str(address))
        sink.write([HEADER])
        assert sink._socket is not None
        assert sink._socket.fileno() > 2
        assert os.open(os.devnull, os.O_RDONLY) == 0
        sink.close()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert read_all(listener) == preamble() + HEADER
