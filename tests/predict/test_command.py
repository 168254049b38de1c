"""``mcp-probe what-if`` from its arguments to its exit code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_probe import cli
from mcp_probe.cli import main
from mcp_probe.launch.outcome import Outcome, Report
from mcp_probe.model import Frame, Header, Summary
from mcp_probe.predict.gains import with_gains
from mcp_probe.record.file import encode, preamble
from mcp_probe.report.page import compose
from mcp_probe.report.page.window import Window
from tests.predict.made import MS, call, job, on_thread, threads, workload
from tests.predict.replayed import recording_of
from tests.predict.test_gains import frames, summary


def write(path: Path, frames: list[Frame]) -> Path:
    path.write_bytes(preamble() + b"".join(map(encode, frames)))
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    calls = []
    for burst in range(6):
        after = tuple(range(6 * burst - 6, 6 * burst)) if burst else ()
        calls += [call(on_thread(), at=MS, after=after, jobs=(job(30 * MS),), operation="resize") for _ in range(6)]
    return write(tmp_path / "calls.jsonl", recording_of(workload(calls, threads(2))))


def test_the_table_has_now_and_then_and_the_next_limit(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(recording), "--pool", "threads=6", "--no-color"]) == 0
    text = " ".join(capfd.readouterr().out.replace("->", "→").split())
    assert "Clients sent 36 messages" in text
    assert "closed, 6 at once" in text
    assert "what if: --pool threads=6" in text
    assert "resize 36 60.0 → 30.0 90.0 → 30.0" in text
    assert re.search(r"Now, `threads` is the most used: (9\d|100)% at [\d.]+ calls/s, so full at about", text)
    assert "Then, `threads`" in text


def test_without_changes_it_says_what_the_window_is(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(recording), "--no-color"]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "Run again unchanged, the window gives what was measured: 2 percentiles" in text
    assert "→" not in text.replace("->", "→")


def test_json_has_the_same_figures(recording: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(recording), "--pool", "threads=6", "--json", "-"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["format"] == "mcp_probe.prediction/1"
    assert found["changes"][0]["option"] == "--pool threads=6"
    [now], [then] = found["now"]["operations"], found["then"]["operations"]
    assert now["p95_ms"] == pytest.approx(90, abs=0.1)
    assert then["p95_ms"] == pytest.approx(30, abs=0.1)
    assert found["now"]["resources"][0]["name"] == "threads"
    assert main(["what-if", str(recording), "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["arrivals"]["closed"] is True


def test_unknown_names_are_answered_with_the_known_ones(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", str(recording), "--offload", "rezise"]) == 2
    assert "It has resize." in capfd.readouterr().err


def test_a_window_that_cannot_be_run_again_is_refused_with_2(
    recording: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = [call(on_thread(), jobs=(job(MS),), operation="resize")]
    frames = recording_of(workload(calls, threads(2)))
    header = frames[0]
    assert isinstance(header, Header)
    ordinary = write(tmp_path / "ordinary", [replace(header, full=False), *frames[1:]])
    assert main(["what-if", str(ordinary)]) == 2
    assert "not a full one" in capfd.readouterr().err
    few = write(tmp_path / "few", frames)
    assert main(["what-if", str(few)]) == 2
    assert "No operation has 5 calls" in capfd.readouterr().err


def test_a_file_that_is_no_recording_is_told_with_3(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("hello\n")
    assert main(["what-if", str(tmp_path / "other")]) == 3
    assert "not an mcp_probe recording" in capfd.readouterr().err


@pytest.mark.parametrize(
    "given",
    [["--pool", "threads"], ["--pool", "threads=0"], ["--pool", "=3"], ["--speed-up", "resize=50"], ["--rate", "fast"]],
)
def test_arguments_that_say_nothing_are_refused(recording: Path, given: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["what-if", str(recording), *given])
    assert caught.value.code == 2


def test_the_recording_is_not_written_over(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = recording.read_bytes()
    assert main(["what-if", str(recording), "--json", str(recording)]) == 2
    assert "is the recording itself" in capfd.readouterr().err
    assert recording.read_bytes() == before


def published(recording: Path, summary: Summary, exit_code: int | None = 0) -> Summary:
    """What the end of `mcp-probe run --record FILE --full` makes of a summary."""
    publisher = object.__new__(cli._Publisher)
    publisher._full = recording
    outcome = Outcome(exit_code, (Report(1, summary, 48),), ())
    return publisher._predicted(outcome).reports[0].summary


def test_the_report_at_the_end_of_a_run_has_the_gains(tmp_path: Path) -> None:
    made = frames()
    recording = write(tmp_path / "calls.jsonl", made)
    assert published(recording, summary(made)).findings[0].gain is not None


def test_the_end_of_a_run_does_not_wait_for_a_long_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = frames()
    recording = write(tmp_path / "calls.jsonl", made)
    monkeypatch.setattr(cli, "_PREDICTED_BYTES", recording.stat().st_size - 1)
    assert published(recording, summary(made)).findings[0].gain is None
    monkeypatch.undo()
    assert published(recording, summary(made), exit_code=None).findings[0].gain is None


def test_the_page_of_a_full_recording_has_the_gain(tmp_path: Path) -> None:
    made = frames()
    window = Window()
    for frame in made:
        window.add(frame)
    page = compose.render((with_gains(summary(made), made), window), cwd="/")
    assert "Predicted: " in page
