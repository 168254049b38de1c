"""SQL over recordings: the figures are the report's, and files that cannot be read are named."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import RecordingError
from mcp_probe.model import BlockedBy, End, Frame, RequestRecord
from mcp_probe.query.parquet import _Conversion, connection, convert, create_views, is_current, kept_folder
from mcp_probe.query.views import BLOCKED_BY, NAMES, VIEWS
from mcp_probe.record.file import FORMAT_VERSION, encode, preamble, read_recording
from tests.docs.test_docs import ROOT
from tests.frames import make_group, make_header, make_request, make_step, make_wait

MS = 1_000_000
OLD = ROOT / "tests" / "data" / "recording-v1.jsonl"


def recording(path: Path, frames: Iterable[Frame], tail: bytes = b"") -> Path:
    path.write_bytes(b"".join([preamble(), *map(encode, frames), tail]))
    return path


def frames() -> list[Frame]:
    """`resize` holds the loop for 100 ms in every second, and one `lookup` waits for 60 ms of it."""
    found: list[Frame] = [make_header(start_ns=0)]
    for number in range(50):
        at = number * 1000 * MS
        found.append(make_step(at, at + 100 * MS, 1 + 2 * number, "resize"))
        found.append(make_request(1 + 2 * number, "resize", arrival_ns=at, busy=100 * MS))
        waits = (make_wait(at + 40 * MS, at + 100 * MS, "queue"),)
        waiting = make_request(
            2 + 2 * number, "lookup", arrival_ns=at + 40 * MS, queue_transport=60 * MS, busy=MS, waits=waits
        )
        found.append(waiting)
    return found


def asked(sql: str, *recordings: Path) -> list[tuple[Any, ...]]:
    for path in recordings:
        if not is_current(kept_folder(path), path):
            convert(path, kept_folder(path), lambda share: None)
    with connection() as database:
        create_views(database, [(path.name, kept_folder(path)) for path in recordings])
        rows: list[tuple[Any, ...]] = database.execute(sql).fetchall()
        return rows


def test_the_figures_are_those_of_the_report(tmp_path: Path) -> None:
    path = recording(tmp_path / "calls.jsonl", frames())
    fold = Fold()
    fold.add_all(read_recording(path))
    summary = fold.summary()
    operations = {row.name: row for row in summary.operations}
    sql = "SELECT operation, sum(weight), max(total_ms), avg(busy_ms), avg(queue_transport_ms) FROM requests GROUP BY 1"
    for name, count, longest, busy, queued in asked(sql, path):
        row = operations[name]
        assert (count, longest) == (row.count, pytest.approx(row.total_ms.max))
        assert busy == pytest.approx(row.budget_ms.busy)
        assert queued == pytest.approx(row.budget_ms.queue_transport)
    sql = "SELECT victim, blocker, count(*), sum(lo_ms), sum(hi_ms) FROM blocked_by GROUP BY ALL ORDER BY ALL"
    loop = [row for row in summary.blocked_by if row.kind is None]
    assert asked(sql, path) == sorted(map(_row, loop))
    assert ("lookup", "resize") in {(row.victim, row.blocker) for row in loop}


def _row(row: BlockedBy) -> tuple[Any, ...]:
    return row.victim, row.blocker, row.victims, pytest.approx(row.lo_ms), pytest.approx(row.hi_ms)


def test_several_recordings_are_told_apart_and_pieces_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_probe.query.parquet.PIECE_BYTES", 4096)
    old = tmp_path / "old.jsonl"
    old.write_bytes(OLD.read_bytes())
    records = sum(isinstance(frame, RequestRecord) and frame.kind == "request" for frame in read_recording(old))
    new = recording(tmp_path / "new.jsonl", frames())
    found = dict(asked("SELECT recording, count(*) FROM requests WHERE kind = 'request' GROUP BY 1", old, new))
    assert found == {"old.jsonl": records, "new.jsonl": 100}
    for view in (*VIEWS, "blocked_by"):
        columns = [name for name, *_ in asked(f"DESCRIBE {view}", old, new)]
        assert columns == ["recording", *(BLOCKED_BY if view == "blocked_by" else VIEWS[view].columns)]
    blamed = asked("SELECT sum(lo_ms) FROM blocked_by WHERE recording = 'new.jsonl' AND blocker = 'resize'", old, new)
    assert blamed == [(pytest.approx(50 * 60.0),)]


def test_requests_without_a_record_are_groups(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", [make_header(), make_group([(0, 300, 300 * MS)], "search")])
    assert asked("SELECT operation, requests FROM groups", path) == [("search", 300)]
    assert asked("SELECT count(*) FROM requests", path) == [(0,)]


def test_a_recording_of_nothing_has_empty_views(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", [make_header()])
    assert [asked(f"SELECT count(*) FROM {view}", path) for view in VIEWS] == [[(0,)]] * len(VIEWS)


def test_a_line_that_was_cut_off_and_a_kind_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    newer = b'["weather",1,"sunny",[2]]\n'
    path = recording(tmp_path / "a.jsonl", frames(), newer + encode(make_request(999))[:-9])
    assert asked("SELECT count(*) FROM requests", path) == [(100,)]


def test_a_recording_that_grew_is_read_again(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", frames())
    assert asked("SELECT count(*) FROM requests", path) == [(100,)]
    with path.open("ab") as stream:
        stream.write(encode(make_request(999)))
    assert asked("SELECT count(*) FROM requests", path) == [(101,)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.parquet"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"GIF89a\n", "first line is not JSON"),
        (b'{\n  "format": "1"\n}\n', "written by `--json FILE` is for programs and for `mcp-probe compare`"),
        (b'{"format":"other"}\n', "does not name the format"),
        (preamble().replace(b'"version":1', b'"version":7'), f"reads version {FORMAT_VERSION}"),
        (preamble() + encode(make_request(1)) + b"[1,\n" + encode(make_request(2)), "line 3: damaged"),
        (preamble() + encode(make_request(1)) + b"\xff\xfe\n" + encode(make_request(2)), "line 3: damaged"),
        (preamble() + encode(make_request(1)) + b'["request",1]\n', "line 3: not a frame"),
    ],
    ids=["empty", "foreign", "report", "other format", "newer", "damaged", "bytes", "short"],
)
def test_what_cannot_be_read_is_named_and_leaves_nothing(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=told):
        convert(path, kept_folder(path), lambda share: None)
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]


def run(*arguments: str, cwd: Path, ci: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcp_probe", "query", *arguments]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "CI": ci}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_a_recording_without_a_request_is_said_to_have_none(tmp_path: Path) -> None:
    recording(tmp_path / "idle.jsonl", [make_header(start_ns=0), make_step(0, MS, 1, "resize"), End(MS, "exit", 2)])
    done = run("SELECT count(*) AS calls FROM requests", "idle.jsonl", "--no-cache", "--format", "csv", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["calls", "0"])
    assert "No request is in idle.jsonl" in done.stderr


def test_the_command_answers_in_each_form(tmp_path: Path) -> None:
    recording(tmp_path / "a b.jsonl", frames())
    sql = "SELECT operation, count(*) AS calls, NULL AS nothing FROM requests GROUP BY 1 ORDER BY 1"
    table = run(sql, "a b.jsonl", "--no-cache", cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["operation", "calls", "nothing"],
        ["lookup", "50", "–"],
        ["resize", "50", "–"],
    ]
    in_ci = run(sql, "a b.jsonl", "--no-cache", cwd=tmp_path, ci="true")
    assert in_ci.stdout == table.stdout.replace("–", "-")
    assert os.listdir(tmp_path) == ["a b.jsonl"]
    rows = list(csv.reader(io.StringIO(run(sql, "a b.jsonl", "--format", "csv", cwd=tmp_path).stdout)))
    assert rows == [["operation", "calls", "nothing"], ["lookup", "50", ""], ["resize", "50", ""]]
    told = json.loads(run(sql, "a b.jsonl", "--format", "json", cwd=tmp_path).stdout)
    assert told[0] == {"operation": "lookup", "calls": 50, "nothing": None}
    assert sorted(os.listdir(tmp_path)) == ["a b.jsonl", "a b.jsonl.parquet"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("SELEKT 1", "a.jsonl"), 2, "The query failed"),
        (("SELECT 1 FROM nowhere", "a.jsonl"), 2, "nowhere"),
        (("SELECT 1", "gone.jsonl"), 3, "Cannot read the recording"),
        (("SELECT 1", "a.jsonl.parquet"), 3, "is a folder"),
    ],
)
def test_bad_use_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], code: int, told: str) -> None:
    recording(tmp_path / "a.jsonl", [make_header()])
    (tmp_path / "a.jsonl.parquet").mkdir()
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


def test_without_duckdb_it_says_what_to_install(tmp_path: Path) -> None:
    recording(tmp_path / "a.jsonl", [])
    code = "import sys; sys.modules['duckdb'] = None; from mcp_probe.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "query", "SELECT 1", "a.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "mcp-probe-profiler[look]"' in done.stderr


def test_the_page_has_every_view_with_all_its_columns() -> None:
    text = (ROOT / "docs" / "query.md").read_text("utf-8")
    for view, columns in {**{name: each.columns for name, each in VIEWS.items()}, "blocked_by": BLOCKED_BY}.items():
        section = text.split(f"### {view}\n", 1)[1].split("\n#", 1)[0]
        assert [name for name in columns if f"`{name}`" not in section] == [], view


def test_what_does_not_fit_into_memory_is_spilled_beside_the_files_and_not_into_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's own choice is a folder of the working directory, which may be anybody's."""
    spilled_to: list[str] = []
    real = _Conversion.run

    def noted(self: _Conversion) -> dict[str, Any]:
        (folder,) = self._database.execute("SELECT current_setting('temp_directory')").fetchone()
        spilled_to.append(folder)
        Path(folder).mkdir()  # as DuckDB does when it spills
        return real(self)

    monkeypatch.setattr(_Conversion, "run", noted)
    path = recording(tmp_path / "a.jsonl", frames())
    kept = kept_folder(path)
    convert(path, kept, lambda share: None)
    assert [Path(folder).parent.parent for folder in spilled_to] == [tmp_path]
    assert {each.name for each in kept.iterdir()} == {*NAMES, "edges.json", "source.json"}
