"""The channel's thread: who is told, who is hung up on, and what a slow viewer costs."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.errors import LiveError
from mcp_probe.live import channel as channels
from mcp_probe.live import folder, wire
from mcp_probe.live.channel import LiveChannel, every_after
from mcp_probe.now import Detail, Snapshot
from mcp_probe.top.servers import Connection, Gone
from tests.live.snapshots import make_request, make_snapshot

LIMIT_S = 30.0


class Told:
    """A source that counts what it is asked."""

    def __init__(self) -> None:
        self.snapshots = 0
        self.watched: list[bool] = []
        self.words = ""
        self.asked = threading.Event()
        self.fault: Exception | None = None

    def hello(self) -> dict[str, object]:
        return {"probe": "0.1.0", "pid": os.getpid(), "name": "told"}

    def begin(self) -> None:
        self.watched.append(True)

    def stop(self) -> None:
        self.watched.append(False)

    def snapshot(self, every_s: float, took_ms: float | None) -> Snapshot:
        if self.fault is not None:
            raise self.fault
        self.snapshots += 1
        self.asked.set()
        return replace(make_snapshot(notes=(self.words,)), at_unix=float(self.snapshots), every_s=every_s)

    def detail(self, number: int) -> Detail | None:
        return Detail(make_request(number), ()) if number == 3 else None

    def dump(self) -> dict[str, object]:
        raise LiveError("Nothing is kept here.")


class Live:
    def __init__(self) -> None:
        self.source = Told()
        self.faults: list[tuple[str, Exception]] = []
        self.states: list[str | None] = []
        self.open = threading.Event()
        self.channel = LiveChannel(self.source, self._fail, self._tell)

    def _tell(self, why: str | None) -> None:
        self.states.append(why)
        self.open.set()

    def _fail(self, hook: str, exc: Exception) -> None:
        self.faults.append((hook, exc))

    def start(self) -> Path:
        self.channel.open()
        assert self.open.wait(LIMIT_S)
        assert self.channel.path is not None
        return self.channel.path


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with tempfile.TemporaryDirectory(prefix="probe-", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        monkeypatch.setattr(channels, "EVERY_S", 0.01)
        found = Live()
        yield found
        found.channel.close("the test is over", waits=True)


def until(holds: Callable[[], bool]) -> None:
    """Waits for another thread."""
    for _ in range(int(LIMIT_S / 0.01)):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to that")


def heard(connection: Connection, key: str) -> Any:
    while True:
        said = connection.read(LIMIT_S)
        assert said is not None
        if said[0] == key:
            return said[1]


def test_nothing_is_computed_before_somebody_watches_nor_after(live: Live) -> None:
    path = live.start()
    connection = Connection(path)
    assert connection.name == "told"
    assert (live.source.snapshots, live.source.watched) == (0, [])
    connection.say("watch")
    assert heard(connection, "snapshot").at_unix == 1
    connection.close()
    until(lambda: live.source.watched == [True, False])
    before = live.source.snapshots
    Connection(path).close()  # one more turn of its thread
    assert live.source.snapshots == before


def test_several_viewers_see_the_same_snapshots(live: Live) -> None:
    path = live.start()
    viewers = [Connection(path) for _ in range(3)]
    for viewer in viewers:
        viewer.say("watch")
    assert all(heard(viewer, "snapshot").server.name == "notes" for viewer in viewers)
    assert live.source.watched == [True]
    for viewer in viewers:
        viewer.close()


def test_a_viewer_that_does_not_read_costs_others_nothing_and_is_told_what_it_missed(live: Live) -> None:
    live.source.words = "x" * 1_000_000  # more than the socket takes
    path = live.start()
    slow, quick = Connection(path), Connection(path)
    for viewer in (slow, quick):
        viewer.say("watch")
    for _ in range(3):
        heard(quick, "snapshot")
    assert heard(slow, "snapshot").dropped == 0  # the one that was sent before it stopped reading
    assert heard(slow, "snapshot").dropped >= 1
    slow.close()
    quick.close()


def test_nothing_is_computed_while_no_watcher_takes_anything(live: Live) -> None:
    live.source.words = "x" * 1_000_000
    path = live.start()
    stopped = Connection(path)
    stopped.say("watch")
    until(lambda: live.source.snapshots >= 1)
    before = live.source.snapshots
    other = Connection(path)  # its thread has made a turn since
    other.say("detail", id=3)
    assert heard(other, "detail").request.id == 3
    assert live.source.snapshots == before
    stopped.close()
    other.close()


def test_one_request_is_told_and_one_that_is_gone_is_none(live: Live) -> None:
    connection = Connection(live.start())
    connection.say("detail", id=3)
    assert heard(connection, "detail") == Detail(make_request(3), ())
    connection.say("detail", id=4)
    assert heard(connection, "detail") is None
    connection.close()


def test_what_cannot_be_dumped_is_a_sentence(live: Live) -> None:
    connection = Connection(live.start())
    connection.say("dump")
    assert heard(connection, "refused") == "Nothing is kept here."
    connection.close()


@pytest.mark.parametrize(
    "question",
    [b'{"watch":{"version":99}}\n', b'{"watch":3}\n', b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff\n", b"x" * 9_000],
)
def test_whoever_speaks_otherwise_is_hung_up_on_and_the_next_one_is_heard(live: Live, question: bytes) -> None:
    path = live.start()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(LIMIT_S)
        stranger.connect(str(path))
        with suppress(OSError):
            stranger.sendall(question)
        came = b""
        with suppress(ConnectionError):
            while part := stranger.recv(65536):
                came += part
    lines = [json.loads(line) for line in came.splitlines()]
    assert lines[0]["hello"]["version"] == wire.VERSION
    assert all("asks for version" in line["refused"] for line in lines[1:])
    connection = Connection(path)
    connection.say("watch")
    heard(connection, "snapshot")
    connection.close()
    assert live.faults == []


def test_another_user_is_hung_up_on_without_a_word(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "uid_of_peer", lambda connection: os.geteuid() + 1)
    path = live.start()
    with pytest.raises(Gone):
        Connection(path)


def test_another_users_server_is_not_asked(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    path = live.start()
    monkeypatch.setattr("mcp_probe.top.servers.uid_of_peer", lambda connection: os.geteuid() + 1)
    with pytest.raises(LiveError, match="another user's socket"):
        Connection(path)


def test_too_many_viewers_get_a_sentence(live: Live) -> None:
    path = live.start()
    viewers = [Connection(path) for _ in range(channels.MAX_VIEWERS)]
    one_more = Connection(path)
    assert "8 viewers watch this server already" in heard(one_more, "refused")
    for viewer in (*viewers, one_more):
        viewer.close()


def test_a_viewer_is_told_why_it_ends_and_the_name_is_gone(live: Live) -> None:
    path = live.start()
    connection = Connection(path)
    live.channel.close("its process ends", waits=True)
    with pytest.raises(Gone, match="its process ends"):
        while True:
            connection.read(LIMIT_S)
    connection.close()
    assert not path.exists()
    with pytest.raises(Gone):
        Connection(path)


def test_a_fault_ends_the_channel_and_nothing_else(live: Live) -> None:
    live.source.fault = ValueError("a defect of ours")
    connection = Connection(live.start())
    connection.say("watch")
    with pytest.raises(Gone, match="its probe has failed"):
        while True:
            connection.read(LIMIT_S)
    connection.close()
    until(lambda: bool(live.faults))
    [(hook, exc)] = live.faults
    assert (hook, str(exc)) == ("live channel", "a defect of ours")


def test_without_a_folder_it_is_off_and_says_why(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "candidates", list)
    live.channel.open()
    assert live.open.wait(LIMIT_S)
    assert "There is no folder for the live socket" in str(live.states[0])


def test_a_forked_child_leaves_the_socket_to_its_parent(live: Live) -> None:
    path = live.start()
    connection = Connection(path)
    child = os.fork()
    if not child:
        live.channel.abandon()
        live.channel.close("forked", waits=True)
        os._exit(0 if path.exists() else 1)
    assert os.waitpid(child, 0)[1] == 0
    connection.say("watch")
    heard(connection, "snapshot")
    connection.close()


def test_a_viewer_that_was_killed_is_forgotten(live: Live) -> None:
    path = live.start()
    ready, child_ready = os.pipe()
    child = os.fork()
    if not child:
        viewer = Connection(path)
        viewer.say("watch")
        os.write(child_ready, b"x")
        signal.pause()
    os.read(ready, 1)
    until(lambda: live.channel.watched)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    os.close(child_ready)
    until(lambda: not live.channel.watched)
    assert live.faults == []


def test_costly_snapshots_come_less_often() -> None:
    assert every_after(0.001) == channels.EVERY_S
    assert every_after(0.05) == pytest.approx(5.0)
    assert every_after(3.0) == channels.LONGEST_EVERY_S
