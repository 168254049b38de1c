"""Results survive the file, and a file that holds something else says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_probe.errors import RecordingError
from mcp_probe.workloads.bench.results import read_results, write_results
from tests.workloads.bench.made import check, full, result, results


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


def test_verdicts_that_had_another_name_are_read_by_their_new_one(tmp_path: Path) -> None:
    """So that results from before are compared by what was found, and not by what it was called."""
    path = tmp_path / "results.json"
    now = results(result(checks=(check("001-3", verdict="in shape"), check("001-4", verdict="cannot be told here"))))
    write_results(now, path)
    before = path.read_text().replace('"in shape"', '"holds in shape"').replace("be told here", "be tested here")
    assert before != path.read_text()
    path.write_text(before)
    assert read_results(path) == now


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "is not JSON"),
        ("[]", "expected 'mcp_probe.bench/1'"),
        ('{"format": "mcp_probe.bench/9"}', "says format 'mcp_probe.bench/9'"),
        ('{"format": "mcp_probe.bench/1"}', "is damaged: KeyError"),
        ('{"format": "mcp_probe.bench/1", "machine": {}, "size": "quick", "results": 5}', "is damaged: TypeError"),
        ('{"format": "mcp_probe.bench/1", "machine": {}, "size": "quick", "results": [{}]}', "is damaged: KeyError"),
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
