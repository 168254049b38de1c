"""Results survive the file, and a file that holds something else says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_probe.errors import RecordingError
from mcp_probe.workloads.bench.results import read_results, write_results
from tests.workloads.bench.made import full, results


@pytest.mark.parametrize("found", [full(), results()], ids=["one of everything", "nothing"])
def test_what_was_written_is_read(tmp_path: Path, found: object) -> None:
    path = tmp_path / "results.json"
    write_results(found, path)  # type: ignore[arg-type]
    assert read_results(path) == found
    assert [each.name for each in tmp_path.iterdir()] == ["results.json"]


def test_keys_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results(full(), path)
    values = json.loads(path.read_text())
    values["results"][0]["outcome"]["rows"][0]["measured"]["p50"] = 1.0
    values["results"][0]["mood"] = "good"
    path.write_text(json.dumps(values))
    assert read_results(path) == full()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "is not JSON"),
        ("[]", "expected 'mcp_probe.bench/1'"),
        ('{"format": "mcp_probe.bench/9"}', "says format 'mcp_probe.bench/9'"),
        ('{"format": "mcp_probe.bench/1"}', "is damaged: KeyError"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=said):
        read_results(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"Cannot read .*nowhere\.json"):
        read_results(tmp_path / "nowhere.json")
