"""Recordings of a limited size: what is kept, what is said of the rest, and that all files are read as one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import OptionError
from mcp_probe.histogram import bucket_of
from mcp_probe.model import Frame, Part, RequestGroup, RequestRecord
from mcp_probe.record import parts
from mcp_probe.record.file import encode, preamble, read_recording
from mcp_probe.record.parts import SHARES, RecordingFile, RecordingWriter, bytes_of, files_of, read_parts
from mcp_probe.record.private_file import create
from tests.frames import MS, make_end, make_group, make_header, make_request

LIMIT = 96_000
HEADER = make_header()


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_BYTES", 1)


def calls(count: int) -> list[Frame]:
    """Some counted in groups of ten, the others with a record each."""
    frames: list[Frame] = []
    for number in range(1, count + 1):
        request = make_request(number, arrival_ns=number * MS, busy=MS // 2)
        group = make_group([(bucket_of(MS), 10, 10 * MS)], first_ns=number * MS, last_ns=number * MS + MS)
        frames.append(group if number % 7 == 0 else request)
    return frames


def requests_of(frames: Sequence[Frame]) -> int:
    return sum(frame.count if isinstance(frame, RequestGroup) else isinstance(frame, RequestRecord) for frame in frames)


def written(path: Path, frames: Sequence[Frame], limit: int | None = LIMIT, batch: int = 3) -> Path:
    writer = RecordingWriter(path, limit)
    lines = [encode(frame) for frame in [HEADER, *frames]]
    for first in range(0, len(lines), batch):
        writer.write(lines[first : first + batch])
    writer.close()
    return path


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


# --- what is kept -------------------------------------------------------------------------------------------


@given(st.integers(0, 900), st.integers(1, 200), st.integers(60_000, 200_000))
@settings(max_examples=25, deadline=None)
def test_the_newest_frames_are_kept_within_the_limit_and_all_others_are_counted(
    tmp_path_factory: pytest.TempPathFactory, count: int, batch: int, limit: int
) -> None:
    path = tmp_path_factory.mktemp("parts") / "calls.jsonl"
    frames = calls(count)
    written(path, [*frames, make_end()], limit, batch)
    assert size_of(path) <= limit
    assert all(file.stat().st_size <= limit // SHARES for file in files_of(path))
    kept = [frame for frame in read_parts(path) if not isinstance(frame, (Part, type(HEADER)))]
    assert kept == [*frames, make_end()][len(frames) + 1 - len(kept) :]
    fold = Fold()
    fold.add_all(read_parts(path))
    missing = requests_of(frames) - requests_of(kept)
    assert [f"cut: {missing:,} earlier requests" in note for note in fold.summary().notes] == [True] * (missing > 0)
    assert fold.summary().requests.count == requests_of(kept)
    if missing:
        assert size_of(path) >= limit * 6 / 8 - 2_000  # seven of the eight, and the last one is about to begin


def test_a_recording_within_its_limit_is_one_file_like_any_other(tmp_path: Path) -> None:
    limited = written(tmp_path / "limited.jsonl", calls(10))
    free = written(tmp_path / "free.jsonl", calls(10), None)
    assert limited.read_bytes() == free.read_bytes()
    assert len(os.listdir(tmp_path)) == 2


def test_each_part_can_be_read_by_itself_and_says_what_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.jsonl", [*calls(600), make_end()])
    *older, newest = files_of(path)
    assert newest == path and len(older) >= 5
    for file in older:
        fold = Fold()
        fold.add_all(read_parts(file))
        summary = fold.summary()
        assert summary.server.name == "test-server"
        assert summary.requests.count > 0
        assert "goes on in another file" in " ".join(summary.notes)
        assert "stops without an end" not in " ".join(summary.notes)


def test_the_window_of_a_cut_recording_begins_with_what_is_left(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.jsonl", [*calls(600), make_end(at_ns=601 * MS)])
    kept = [frame for frame in read_parts(path) if isinstance(frame, RequestRecord)]
    fold = Fold()
    fold.add_all(read_parts(path))
    window = fold.summary().window
    since = min(kept[0].arrival_ns, kept[0].id * MS)
    assert window.seconds == pytest.approx((601 * MS - since) / 1e9, abs=0.002)
    assert window.start_unix == pytest.approx(HEADER.start_unix + since / 1e9, abs=0.002)


def test_one_line_longer_than_a_share_is_kept(tmp_path: Path) -> None:
    long = make_request(1, "x" * (LIMIT // 4))
    path = written(tmp_path / "calls.jsonl", [*calls(100), long, make_end()], batch=1)
    assert long in list(read_parts(path))


# --- other files beside it ----------------------------------------------------------------------------------


def test_a_new_recording_removes_the_parts_of_the_one_it_replaces_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.jsonl", calls(600))
    others = ["calls.jsonl.2", "calls.jsonl.part-1", "calls.jsonl.2.part-00001", "xcalls.jsonl.part-00001"]
    for name in others:
        (tmp_path / name).write_text("kept")
    written(path, calls(2), None)
    assert sorted(os.listdir(tmp_path)) == sorted(["calls.jsonl", *others])


def test_parts_of_another_recording_are_not_read_with_it(tmp_path: Path) -> None:
    other = written(tmp_path / "other.jsonl", calls(600))
    path = tmp_path / "calls.jsonl"
    path.write_bytes(preamble() + encode(replace(HEADER, pid=77)) + encode(make_end()))
    shutil.copy(files_of(other)[0], tmp_path / "calls.jsonl.part-00001")
    assert [type(frame).__name__ for frame in read_parts(path)] == ["Header", "End"]


def test_a_kill_between_two_files_leaves_the_parts_readable(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.jsonl", calls(600))
    whole = requests_of(list(read_parts(path)))
    newest = requests_of(list(read_recording(path)))
    path.unlink()
    assert requests_of(list(read_parts(path))) == whole - newest


def test_a_part_deleted_from_the_middle_is_counted_as_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.jsonl", [*calls(600), make_end()])
    files_of(path)[2].unlink()
    fold = Fold()
    fold.add_all(read_parts(path))
    summary = fold.summary()
    missing = requests_of(calls(600)) - summary.requests.count
    assert f"cut: {missing:,} earlier requests" in " ".join(summary.notes)


def test_a_file_that_was_moved_away_is_let_go_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    writer = RecordingWriter(path, LIMIT)
    writer.write([encode(HEADER)])
    path.rename(tmp_path / "mine.jsonl")
    writer.write([encode(frame) for frame in calls(100)])
    writer.close()
    assert requests_of(list(read_recording(tmp_path / "mine.jsonl"))) > 0
    assert requests_of(list(read_parts(path))) > 0


def test_a_file_that_somebody_put_in_its_place_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    writer = RecordingWriter(path, LIMIT)
    writer.write([encode(HEADER)])
    path.unlink()
    path.write_text("precious")
    with pytest.raises(OSError, match="another file has taken its place"):
        writer.write([encode(frame) for frame in calls(100)])
    writer.close()
    assert path.read_text() == "precious"


# --- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500_000_000), ("2 gb", 2_000_000_000), ("1.5kB", 1500), ("77", 77), (5, 5)]
)
def test_sizes_are_decimal(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1e9", "5 apples", "0", True, 0, -5, "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="expected a size of at least 1MB"):
        bytes_of(text)


def test_a_pipe_cannot_have_a_limit(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    make: Callable[[], FileIO] = lambda: create(tmp_path / "x")  # noqa: E731
    with FileIO(reading), FileIO(writing, "wb") as stream, pytest.raises(OSError, match="no regular file"):
        RecordingFile(stream, "/dev/fd/9", LIMIT, reopen=make)
