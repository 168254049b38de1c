"""The parent's end of the channel: bytes in, recordings and summaries out."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.launch.parent import Recordings, numbered
from mcp_probe.launch.receive import Receiver
from mcp_probe.record.file import encode, preamble
from tests.frames import make_end, make_header, make_request

HEADER, REQUEST, END = encode(make_header(pid=5)), encode(make_request()), encode(make_end())


class Receiving:
    """A receiver at work on its thread, and a way to connect to it."""

    def __init__(self, folder: Path, record: Path | None = None) -> None:
        self._address = str(folder / "channel")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._address)
        listener.listen()
        open_record = None if record is None else Recordings(record, None).next
        self.receiver = Receiver(listener, open_record=open_record, slow_step_ms=10.0)
        self._thread = threading.Thread(target=self.receiver.receive)
        self._thread.start()
        self._peers: list[socket.socket] = []

    def connect(self, *parts: bytes) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(self._address)
        self._peers.append(peer)
        for part in parts:
            peer.sendall(part)
        return peer

    def finish(self) -> None:
        self.receiver.finish(20)
        self._thread.join(20)
        for peer in self._peers:
            peer.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mcp-probe-test-") as name:
        yield Path(name)


def test_what_was_sent_before_the_end_is_all_taken(folder: Path) -> None:
    receiving = Receiving(folder)
    receiving.connect(preamble() + HEADER + REQUEST * 5000 + END).close()
    receiving.finish()
    (served,) = receiving.receiver.served()
    assert (served.pid, served.requests, served.ended, served.connected) == (5, 5000, True, False)
    assert served.summary.requests.count == 5000


@pytest.mark.parametrize(
    ("sent", "all_is_there"),
    [
        ((), False),
        ((END,), True),
        ((END, b""), False),
        ((END, END), True),
    ],
)
def test_all_is_there_once_each_serving_process_has_sent_its_end(
    folder: Path, sent: tuple[bytes, ...], all_is_there: bool
) -> None:
    receiving = Receiving(folder)
    for end in sent:
        receiving.connect(preamble() + HEADER + REQUEST + end)
    receiving.finish()
    assert receiving.receiver.has_all() is all_is_there


def test_lines_cut_anywhere_are_put_together(folder: Path) -> None:
    receiving = Receiving(folder, folder / "recording")
    sent = preamble() + HEADER + REQUEST + END
    receiving.connect(*(sent[at : at + 7] for at in range(0, len(sent), 7)))
    receiving.finish()
    (served,) = receiving.receiver.served()
    assert (served.requests, served.ended) == (1, True)
    assert (folder / "recording").read_bytes() == sent


def test_a_line_that_never_ended_is_neither_counted_nor_recorded(folder: Path) -> None:
    receiving = Receiving(folder, folder / "recording")
    receiving.connect(preamble() + HEADER + REQUEST + REQUEST[:-10]).close()
    receiving.finish()
    (served,) = receiving.receiver.served()
    assert (served.requests, served.ended, served.problem) == (1, False, None)
    assert (folder / "recording").read_bytes() == preamble() + HEADER + REQUEST


def test_processes_are_kept_apart_in_the_order_of_their_connections(folder: Path) -> None:
    receiving = Receiving(folder, folder / "recording")
    first = receiving.connect(preamble(), encode(make_header(pid=1)))
    second = receiving.connect(preamble(), encode(make_header(pid=2)))
    second.sendall(REQUEST)
    first.sendall(REQUEST * 2)
    receiving.finish()
    assert [(served.pid, served.requests) for served in receiving.receiver.served()] == [(1, 2), (2, 1)]
    assert (folder / "recording.2").read_bytes() == preamble() + encode(make_header(pid=2)) + REQUEST


def test_a_process_that_only_connected_has_served_nothing(folder: Path) -> None:
    receiving = Receiving(folder, folder / "recording")
    receiving.connect()
    receiving.connect(preamble(), HEADER)
    receiving.finish()
    assert [served.pid for served in receiving.receiver.served()] == [5]
    assert (folder / "recording").read_bytes() == preamble() + HEADER


def test_a_process_that_goes_on_is_still_connected_at_the_end(folder: Path) -> None:
    receiving = Receiving(folder)
    receiving.connect(preamble(), HEADER)
    receiving.finish()
    assert [served.connected for served in receiving.receiver.served()] == [True]


@pytest.mark.parametrize("bad", [b"[1,2\n", b'["request",1]\n', b"42\n"])
def test_a_bad_line_ends_the_report_with_a_sentence_and_not_the_recording(folder: Path, bad: bytes) -> None:
    receiving = Receiving(folder, folder / "recording")
    receiving.connect(preamble() + HEADER + REQUEST + bad + REQUEST)
    receiving.finish()
    (served,) = receiving.receiver.served()
    assert served.requests == 1
    assert "its report ends early" in str(served.problem)
    assert (folder / "recording").read_bytes() == preamble() + HEADER + REQUEST + bad + REQUEST


def test_a_disk_that_fills_up_costs_the_recording_and_not_the_report(folder: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    receiving = Receiving(folder, full)
    receiving.connect(preamble(), HEADER, REQUEST)
    receiving.finish()
    (served,) = receiving.receiver.served()
    assert served.requests == 1
    assert "its recording stopped early (No space left on device)" in str(served.problem)


@pytest.mark.parametrize(("position", "name"), [(1, "a.json"), (2, "a.json.2"), (10, "a.json.10")])
def test_files_of_further_processes_are_numbered(position: int, name: str) -> None:
    assert numbered(Path("out/a.json"), position) == Path("out", name)
