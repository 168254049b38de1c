"""The flight recorder in a server: what is written when, by whom, and that it can be read."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from mcp_probe.aggregate.fold import Fold
from mcp_probe.compare.reading import read_side
from mcp_probe.errors import OptionError
from mcp_probe.live import flight as flights
from mcp_probe.live.flight_files import MAX_FILES, folder_of, name_of, prune, write
from mcp_probe.model import Frame, Header, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.session import Probe, attach
from tests.adapters.serving import over_memory_streams
from tests.loops import LOOPS
from tests.running import Backend, run_on

LIMIT_S = 60.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "GAP_S", 0.0)
    monkeypatch.setattr("mcp_probe.record.running_p99.MIN_COUNT", 5)
    for name in ("DRAIN_S", "BUSY_DRAIN_S", "SAMPLE_S", "IDLE_SAMPLE_S"):
        monkeypatch.setattr(f"mcp_probe.collector.{name}", 0.05)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("flight-*.jsonl"))


def hanging_in(folder: Path) -> list[Path]:
    """Without one of a quick call that was slow because the machine was."""
    return [path for path in files_in(folder) if "has not answered for" in note_of(list(read_recording(path)))]


def note_of(frames: list[Frame]) -> str:
    [header] = [frame for frame in frames if isinstance(frame, Header)]
    [note] = [note for note in header.notes if note.startswith("Flight recording")]
    return note


class Searching:
    """``search`` answers at once, or when it is let go."""

    def __init__(self) -> None:
        self.server = MCPServer("searching")
        self.hung = threading.Event()
        self.let_go: anyio.Event | None = None
        self.server.tool()(self.search)

    async def search(self, slow: bool = False) -> str:
        if slow:
            self.let_go = anyio.Event()
            self.hung.set()
            await self.let_go.wait()
        return "x"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("backend", LOOPS)
def test_a_request_that_hangs_is_written_while_it_hangs(backend: Backend, tmp_path: Path) -> None:
    """The recording has it unfinished, with those before it; and report and compare read it."""
    searching = Searching()
    loops_thread: list[int] = []
    probe = attach(searching.server, telemetry="off", flight=str(tmp_path / "flights"))

    async def call() -> None:
        loops_thread.append(threading.get_ident())
        async with over_memory_streams(searching.server) as session, anyio.create_task_group() as group:
            for _ in range(6):
                await session.call_tool("search", {})
            probe.snapshot()
            group.start_soon(session.call_tool, "search", {"slow": True})
            await anyio.to_thread.run_sync(searching.hung.wait)
            while not hanging_in(tmp_path / "flights"):
                await anyio.sleep(0.02)
            assert searching.let_go is not None
            searching.let_go.set()

    try:
        run_on(backend, call)
    finally:
        probe.detach()
    path = hanging_in(tmp_path / "flights")[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    frames = list(read_recording(path))
    assert "search has not answered for" in note_of(frames)
    outcomes = [frame.outcome for frame in frames if isinstance(frame, RequestRecord) and frame.name == "search"]
    assert outcomes == ["ok"] * 6 + ["unfinished"]
    fold = Fold()
    fold.add_all(frames)
    summary = fold.summary()
    assert summary.complete
    [row] = [one for one in summary.operations if one.name == "search"]
    assert (row.count, row.unfinished) == (7, 1)
    assert read_side([path]) is not None


def test_what_is_asked_for_is_written_by_whoever_asks(tmp_path: Path) -> None:
    searching = Searching()
    probe = attach(searching.server, telemetry="off", flight=str(tmp_path), flight_seconds=30)

    async def call() -> None:
        async with over_memory_streams(searching.server) as session:
            await session.call_tool("search", {})

    try:
        run_on("asyncio", call)
        assert probe._flight is not None
        path = Path(probe._flight.write_now("the test asked for it"))
    finally:
        probe.detach()
    frames = list(read_recording(path))
    assert note_of(frames).endswith("Written because: the test asked for it.")
    assert path.name == name_of("asked", path.stat().st_mtime, os.getpid()) or "asked" in path.name


@pytest.mark.parametrize("backend", LOOPS)
def test_what_has_fired_is_written_before_a_signal_ends_the_process(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn sends itself its signal on the loop's thread."""
    writing = threading.Event()

    def write_late(folder: str, name: str, lines: Sequence[bytes]) -> str:
        writing.set()
        time.sleep(0.1)
        return write(folder, name, lines)

    monkeypatch.setattr(flights, "write", write_late)
    searching = Searching()
    probe = attach(searching.server, telemetry="off", flight=str(tmp_path))

    async def call() -> None:
        async with over_memory_streams(searching.server) as session:
            await session.call_tool("search", {})
            assert probe._flight is not None
            probe._flight.ask("It fired.")
            await anyio.to_thread.run_sync(writing.wait, LIMIT_S)
            probe._hub.process_ends(0.0)
            assert len(files_in(tmp_path)) == 1

    try:
        run_on(backend, call)
    finally:
        probe.detach()


def sent_to_itself(probe: Probe, folder: Path) -> list[Path]:
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: bool(files_in(folder)))
    return files_in(folder)


@pytest.mark.usefixtures("quick")
def test_the_signal_has_it_written_and_is_the_defaults_again_afterwards(tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    searching = Searching()
    probe = attach(searching.server, telemetry="off", flight=str(tmp_path), dump_signal=True)

    async def call() -> None:
        async with over_memory_streams(searching.server) as session:
            await session.call_tool("search", {})

    try:
        run_on("asyncio", call)
        probe.snapshot()
        [path] = sent_to_itself(probe, tmp_path)
    finally:
        probe.detach()
    assert "SIGUSR1 was sent." in note_of(list(read_recording(path)))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    heard: list[int] = []
    own = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    mine = signal.getsignal(signal.SIGUSR1)
    try:
        probe = attach(Searching().server, telemetry="off", flight=str(tmp_path), dump_signal=True)
        assert signal.getsignal(signal.SIGUSR1) is mine
        assert "handles SIGUSR1 itself" in probe._hub.hooks["dump signal"]
        probe.detach()
        assert signal.getsignal(signal.SIGUSR1) is mine
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, own)


def test_a_handler_that_came_later_stays(tmp_path: Path) -> None:
    probe = attach(Searching().server, telemetry="off", flight=str(tmp_path), dump_signal=True)
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        probe.detach()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_without_the_option_no_signal_is_touched_and_no_thread_is_there(tmp_path: Path) -> None:
    probe = attach(Searching().server, telemetry="off")
    try:
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert probe._flight is None
        assert probe._live is None
    finally:
        probe.detach()
    assert list(tmp_path.iterdir()) == []


# --- files ----------------------------------------------------------------------------------------


def test_old_recordings_go_and_strangers_stay(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 5):
        path = tmp_path / name_of("search", 1_700_000_000 + number, 12)
        path.write_bytes(b"x")
        os.utime(path, (number, number))
    strangers = ["notes.txt", "flight-report.jsonl", "flight-20261126T000000Z-12-x.jsonl.bak"]
    for name in strangers:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    prune(str(tmp_path))
    kept = files_in(tmp_path)
    assert len([path for path in kept if path.name not in strangers]) == MAX_FILES
    assert {path.name for path in tmp_path.iterdir()} >= set(strangers)
    assert name_of("search", 1_700_000_000, 12) not in {path.name for path in kept}


def test_all_of_them_together_have_a_bound_in_bytes(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / name_of("search", 1_700_000_000 + number, 12)
        path.write_bytes(b"x" * 1_000)
        os.utime(path, (number, number))
    prune(str(tmp_path), most_bytes=3_500)
    assert len(files_in(tmp_path)) == 3


def test_two_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    name = name_of("search", 1_700_000_000, 12)
    first, second = (write(str(tmp_path), name, [line]) for line in (b"a\n", b"b\n"))
    assert (Path(first).read_bytes(), Path(second).read_bytes()) == (b"a\n", b"b\n")
    assert Path(first).name == "flight-20231114T221320Z-12-search.jsonl"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("word", ["../../etc/passwd", "", "ä b\n/c", "x" * 500, "-..-"])
def test_a_tools_name_cannot_leave_the_folder(word: str, tmp_path: Path) -> None:
    path = Path(write(str(tmp_path), name_of(word, 1_700_000_000, 12), [b"x"]))
    assert path.parent == tmp_path
    assert len(path.name) < 100
    prune(str(tmp_path), keep=0)
    assert not path.exists()


def test_a_folder_that_cannot_be_used_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="the folder cannot be made"):
        attach(Searching().server, flight=str(tmp_path / "file"))
    with pytest.raises(OptionError, match="the folder cannot be made"):
        folder_of(tmp_path / "file" / "inside")
    made = folder_of(tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"flight": 3}, "flight is 3; expected a path"),
        ({"flight_seconds": 0}, "flight_seconds is 0; expected a number of seconds from 1 to 3 600"),
        ({"flight_factor": 0.5}, "flight_factor is 0.5; expected a number of times the p99 from 1"),
        ({"dump_signal": True}, "dump_signal was given without flight"),
        ({"live": "yes"}, "live is 'yes'; expected True or False"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        attach(Searching().server, **given)
    assert words in str(caught.value)
