"""The commands as a user runs them, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.workloads.bench.results import read_results, write_results
from mcp_probe.workloads.bench.shapes import INTERRUPTED
from tests.workloads.bench.made import full, result, results, row

PATIENCE_S = 100


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcp_probe", *arguments]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd, env=environment)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench",), "Name a workload"),
        (("bench", "wave"), "There is no workload wave. There are:"),
        (("bench", "--document", "007"), "There is no document 007."),
        (("bench", "waves", "--python", "python3"), "--python is for the workload `pythons`"),
        (("bench", "--server", "true", "--python", "python3"), "--python is for the workload `pythons`"),
        (("bench", "waves", "--json", "no/such/folder/x.json"), "Cannot write no/such/folder/x.json"),
        (("bench", "waves", "--html", "no/such/folder/x.html"), "Cannot write no/such/folder/x.html"),
        (("bench", "waves", "--quick", "--full"), "not allowed with argument"),
        (("bench", "waves", "--width", "10"), "at least 60"),
    ],
)
def test_bad_use_is_one_sentence_and_starts_nothing(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def run_bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In an interpreter that has the standard library and this package, and nothing else."""
    root = Path(__file__).resolve().parents[3]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r}); from mcp_probe.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_list_needs_nothing_installed() -> None:
    done = run_bare("bench", "--list")
    assert done.returncode == 0, done.stderr
    assert "dispatch-micro" in done.stdout and "http-sweep" in done.stdout


def test_what_is_missing_to_run_is_named() -> None:
    done = run_bare("bench", "waves")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no mcp package" in done.stderr and "mcp-probe-profiler[bench]" in done.stderr


@pytest.mark.workloads
@pytest.mark.slow
def test_a_run_leaves_a_page_and_results_that_can_be_compared(tmp_path: Path) -> None:
    target = tmp_path / "now.json"
    done = run("bench", "dispatch-wait", "--quick", "--json", str(target))
    assert done.returncode == 0, done.stderr
    found = read_results(target)
    assert (found.size, [each.name for each in found.results]) == ("quick", ["dispatch-wait"])
    assert found.results[0].error is None
    assert "dispatch-wait" in done.stdout and "000" in done.stdout
    assert "[1/1] dispatch-wait" in done.stderr
    compared = run("compare", str(target), str(target), "--all")
    assert compared.returncode == 0, compared.stderr
    assert "within noise" in compared.stdout or "noise unknown" in compared.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    target = tmp_path / "now.json"
    command = [sys.executable, "-m", "mcp_probe", "bench", "dispatch-wait", "fanout", "--quick", "--json", str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert "[1/2] dispatch-wait" in first
    assert process.returncode == 128 + signal.SIGINT
    done, *cut = read_results(target).results
    assert (done.name, done.error) == ("dispatch-wait", None)
    # Between two workloads there is none to be cut.
    assert [(each.name, each.error) for each in cut] in ([], [("fanout", INTERRUPTED)])
    assert "dispatch-wait" in shown and ("Not complete: interrupted." in shown or not cut)


@pytest.mark.workloads
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_the_rows_of_a_workload_whose_server_still_runs(tmp_path: Path) -> None:
    """As a terminal sends it: to the command and to the servers it started. Cut when the first rows are measured."""
    target, said = tmp_path / "now.json", tmp_path / "said.txt"
    code = (
        "import sys; from mcp_probe.cli import main; from mcp_probe.workloads.bench import progress;"
        f"progress.Progress.show = lambda self, workload, what: open({str(said)!r}, 'a').write(what + '\\n');"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "bench", "fanout", "--quick", "--json", str(target)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while "10 calls at once" not in (said.read_text() if said.exists() else "") and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        shown, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT, stderr
    (cut,) = read_results(target).results
    assert cut.error == INTERRUPTED
    rows = {(row.table, row.label): row for row in cut.outcome.rows}
    assert ("001 §1.1", "10 calls, ratio") in rows and ("001 S2", "5 calls at once") in rows
    assert ("001 S2", "20 calls at once") not in rows
    assert all(row.figure is not None and row.noise_floor is not None for row in rows.values())
    assert "in flight" in rows["001 S2", "5 calls at once"].why
    assert "5 calls at once" in shown and "Not complete: interrupted." in shown


def test_compare_refuses_what_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"format": "somebody.else/1"}))
    done = run("compare", str(path), str(path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "somebody.else/1" in done.stderr and "mcp_probe.bench/1" in done.stderr


def test_compare_shows_the_difference(tmp_path: Path) -> None:
    write_results(full(), tmp_path / "a.json")
    write_results(results(result(row("20 calls", 999.0, floor=1.02, series="pool of 4"))), tmp_path / "b.json")
    done = run("compare", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "20 calls" in line and "●" not in line)
    assert "265 ms" in line and "999 ms" in line and "3.77×" in line and "more than noise" in line
