"""The fault matrix runs two at a time, keeps each run, and goes on where it was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.findings.__main__ import main
from tools.findings.matrix import from_text

ONE_CODE = ["--only", "not-enough-data", "--transports", "stdio", "--sdks", "mcp2", "--lanes", "2"]
CELLS = {
    f"not_enough_data/{form}/stdio/mcp2/{beside}" for form in ("fault", "mended", "near") for beside in ("alone", "hog")
}


@pytest.mark.skipif(sys.platform != "linux", reason="of processes below this one only Linux says what CPU they used")
def test_each_cell_has_its_runs_and_none_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "runs.json"
    arguments = [*ONE_CODE, "--state", str(state), "--minutes", "5"]
    assert main([*arguments, "--runs", "1"]) == 0, capsys.readouterr().out
    first = from_text(state.read_text("utf-8"))
    assert {key: len(runs) for key, runs in first.items()} == dict.fromkeys(CELLS, 1)
    assert {key for key, runs in first.items() if not runs[0].is_forked} == {"not_enough_data/fault/stdio/mcp2/alone"}
    assert all(run.wrong is None for runs in first.values() for run in runs)
    # What others used is right where the machine's own hogs are seen, and neither the server nor its client is.
    shares = {key: runs[0].others for key, runs in first.items()}
    assert min(share for key, share in shares.items() if key.endswith("hog")) > 0.2, shares
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "6 of 6 runs right; 0 of 6 cells are to be run again."
    assert main([*arguments, "--runs", "1"]) == 0
    assert from_text(state.read_text("utf-8")) == first
