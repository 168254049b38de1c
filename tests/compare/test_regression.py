"""``--max-regression``: only what was shown to be kept passes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_probe.compare.judge import compared
from mcp_probe.compare.reading import reading_of
from mcp_probe.compare.regression import Checked, checked, parse_limits
from mcp_probe.compare.samples import recorded
from mcp_probe.compare.shapes import Reading
from mcp_probe.errors import OptionError
from mcp_probe.model import Frame
from tests.compare.recordings import calls, write


def reading(frames: list[Frame]) -> Reading:
    return reading_of(recorded(frames), "a")


@pytest.fixture(scope="module")
def before() -> Reading:
    return reading([*calls(), *calls("rare", count=5)])


@pytest.fixture(scope="module")
def slower() -> Reading:
    return reading([*calls(awaiting_ms=24.0, seed=2), *calls("rare", count=5)])


def judged(before: Reading, after: Reading, limits: str) -> Checked:
    return checked(compared([before], [after]), parse_limits(limits))


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        ("search.p50=40%", "passes"),
        ("search.p50=10%", "failing"),
        ("search.p50=21%", "unknown"),
        ("search.p50=8ms", "passes"),
        ("search.mean=2ms", "failing"),
        ("search.awaiting=6ms", "passes"),
        ("search.awaiting=10%", "failing"),
        ("search.errors=1%", "passes"),
        ("rare.p50=10%", "unknown"),
        ("nobody.p50=10%", "unknown"),
        ("search.requested=10%", "unknown"),
        ("*.p50=40%", "passes"),
        ("*.p50=10%", "failing"),
        ("*.cpu=10%", "unknown"),
    ],
)
def test_a_limit_is_kept_exceeded_or_not_known(before: Reading, slower: Reading, limit: str, outcome: str) -> None:
    found = judged(before, slower, limit)
    assert found.passes == (outcome == "passes")
    assert bool(found.failing) == (outcome == "failing")
    assert bool(found.unknown) == (outcome == "unknown")


def test_operations_with_too_few_calls_are_named_beside_a_star(before: Reading, slower: Reading) -> None:
    [remark] = judged(before, slower, "*.p50=40%").remarks
    assert "rare" in remark and "too few calls" in remark


def test_a_contended_side_passes_nothing(before: Reading) -> None:
    assert not judged(before, replace(before, contended="others"), "search.p50=40%").passes
    assert judged(before, before, "search.p50=40%").passes


@pytest.mark.parametrize(
    "text",
    [
        *("", "search", "search.p50", "search.p50=", "search.p50=10", "search.p99=10%", "search.p50=10MB", "p50=10%"),
        *("search.requested=10ms", "search.errors=5ms", "search.p50=10%,", "search.p50=-1%"),
    ],
)
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(OptionError):
        parse_limits(text)


def test_an_operation_may_have_dots() -> None:
    [limit] = parse_limits("a.b/c.p95=1.5s")
    assert (limit.operation, limit.measure, limit.most) == ("a.b/c", "p95", 1500.0)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcp_probe", "compare", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_shows_judges_and_writes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", calls())
    write(tmp_path / "b.jsonl", calls(awaiting_ms=24.0, seed=2))
    limit = ("--max-regression", "search.p50=10%")
    done = run("a.jsonl", "b.jsonl", *limit, "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "what moved is awaiting" in done.stdout
    assert "search.p50 got worse by between" in done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["format"] == "mcp_probe.comparison/1"
    assert found["max_regression"]["passes"] is False
    [row] = [each for each in found["rows"] if (each["operation"], each["measure"]) == ("search", "p50")]
    assert row["judgement"] == "more than noise" and 1.1 < row["low"] < row["change"] < row["high"]
    again = run("--before", "a.jsonl", "a.jsonl", "--after", "a.jsonl", "a.jsonl", "--json", "-", *limit, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["max_regression"]["passes"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("a.jsonl",), 2, "Expected two files"),
        (("a.jsonl", "a.jsonl", "--before", "a.jsonl"), 2, "both sides"),
        (("a.jsonl", "a.jsonl", "--json", "a.jsonl"), 2, "one of the other files"),
        (("a.jsonl", "gone.jsonl"), 3, "gone.jsonl"),
        (("a.jsonl", "a.jsonl", "--max-regression", "search.p50"), 2, "is not understood"),
    ],
)
def test_bad_use_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], code: int, told: str) -> None:
    write(tmp_path / "a.jsonl", calls(count=3))
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


def test_without_scipy_it_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", calls(count=30))
    code = "import sys; sys.modules['scipy'] = None; from mcp_probe.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "compare", "a.jsonl", "a.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "mcp-probe-profiler[look]"' in done.stderr
