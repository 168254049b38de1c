"""The table of predictions: what it holds against what, and that nothing is left out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.predictions import section
from benchmarks.twins import Mend, mended_copy


def run(was: float, predicted: float | None, twin: float, load: float = 0.5) -> dict[str, Any]:
    figures = {"calls": 100, "was": (was, 2 * was), "twin": (twin, 2 * twin)}
    if predicted is not None:
        figures["predicted"] = (predicted, 2 * predicted)
    refused = None if predicted is not None else "p95 is off"
    return {"refused": refused, "operations": {"tool": figures}, "load": load, "changes": "--offload tool"}


def cells(text: str) -> list[str]:
    [row] = [line for line in text.splitlines() if line.startswith("| `")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_every_run_is_held_against_the_median_of_the_twin() -> None:
    text = section({"one|stdio": [run(100, 50, 40), run(102, 55, 50), run(98, 44, 60)]})
    assert cells(text)[:4] == ["`one`, stdio", "`--offload tool`", "tool", "100"]
    assert cells(text)[4:8] == ["100.0", "50.0", "50.0 (40.0…60.0)", "**+0%** (-12%, +0%, +10%)"]
    assert "Within 20% of the twin: 1 of 1 at p50 and 1 of 1 at p95. Of the single runs, 3 of 3 and 3 of 3." in text


def test_a_twin_whose_runs_are_far_apart_says_so() -> None:
    text = section({"one|stdio": [run(100, 50, 30), run(100, 50, 50), run(100, 50, 70)]})
    assert "Of the percentiles of the twins' own runs, 2 of 6 are so near to their median." in text


def test_what_is_refused_stays_in_the_table_and_is_listed() -> None:
    text = section({"one|http": [run(100, None, 50)]})
    assert cells(text)[4:8] == ["100.0", "refused", "50.0", ""]
    assert "Refused by the self-check: 1 of 1 recordings." in text
    assert "- `one`, http: p95 is off" in text
    assert "0 of 0 at p50" in text


def test_a_mend_that_does_not_fit_the_package_is_no_twin(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "server"
    package.mkdir(parents=True)
    (package / "server.py").write_text("a = 1\nb = 2\n")
    into = mended_copy(tmp_path, "server", [Mend("server.py", "a = 1", "a = 3")], tmp_path / "mended")
    assert (into / "server" / "server.py").read_text() == "a = 3\nb = 2\n"
    assert (package / "server.py").read_text() == "a = 1\nb = 2\n"
    with pytest.raises(ValueError, match="just once"):
        mended_copy(tmp_path, "server", [Mend("server.py", "c = 1", "c = 3")], tmp_path / "again")
