"""The comparisons on a server of the user's: what is called, what is said, and what is refused."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from mcp_probe import cli
from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.grader import UNTOLD
from mcp_probe.workloads.bench.own import calls as own_calls
from mcp_probe.workloads.bench.own.comparison import compare
from mcp_probe.workloads.bench.own.operations import OwnServer
from mcp_probe.workloads.bench.shapes import Check, Outcome
from mcp_probe.workloads.load.peer import Target

SERVER = Path(__file__).with_name("annotated_server.py")
RAW = Path(__file__).parents[2] / "load" / "raw_server.py"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes for a test: what is tested is what is done, not how often."""

    def size(self: Bench, quick: float, full: float) -> float:
        sizes: dict[float, float] = {20: 4, 40: 10, 128: 8, 4: 2, 8: 2, 3: 2}
        return sizes.get(quick, quick)

    monkeypatch.setattr(Bench, "size", size)


def compared(own: OwnServer) -> Outcome:
    async def run() -> Outcome:
        return await compare(own, Bench(quick=True))

    return anyio.run(run)


def check_of(outcome: Outcome, claim: str) -> Check:
    (found,) = (check for check in outcome.checks if claim in check.claim)
    return found


def annotated(log: Path) -> Target:
    log.touch()
    return Target(command=(sys.executable, str(SERVER), str(log)))


@pytest.mark.workloads
@pytest.mark.slow
def test_read_only_tools_are_called_with_proposed_arguments_and_no_others(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    outcome = compared(OwnServer(annotated(log)))
    called = Counter(log.read_text().split())
    assert set(called) == {"look", "find"}
    notes = {row.label: row.note for row in outcome.rows if row.table == "tools"}
    assert notes["find"].startswith('Called, the server declares it read-only: {"what": "example"} (what: made up).')
    assert notes["erase"].startswith("Not called: the server does not declare it read-only.")
    assert notes["nap"].endswith("To call it: `mcp-probe bench --call 'nap={}'`")
    labels = {row.label for row in outcome.rows if row.table.startswith("operations")}
    assert labels == {
        *("list tools", "list prompts", "list resources"),
        *("prompt greet", "read note://today", "tool look", "tool find"),
    }


@pytest.mark.workloads
def test_a_named_tool_is_called_and_everything_is_measured_with_it(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    outcome = compared(OwnServer(annotated(log), tool="nap"))
    assert set(log.read_text().split()) == {"nap"}
    tables = {row.table for row in outcome.rows}
    assert len(tables) == 8
    for claim in ("000-7", "001-8"):  # true of this server; a busy machine can only hide it
        assert check_of(outcome, claim).verdict != "does not hold", claim
    fan_out = {row.x: row.figure for row in outcome.rows if row.table.startswith("fan-out")}
    assert sorted(fan_out, key=lambda count: int(count or 0)) == [1, 2, 5, 10, 20, 40]
    assert (fan_out[40] or 0) < 40 * 150 / 2  # 40 naps one after the other are 6 s
    assert all((row.figure or 0) >= 150 for row in outcome.rows if row.table.startswith("fan-out"))
    assert any(row.why for row in outcome.rows)  # the probe was in it
    starts = log.with_suffix(".starts").read_text().split()
    assert starts[:3] == ["probed", "bare", "probed"]  # the sweep is without it; then come the sweep's reasons
    sweep = [row for row in outcome.rows if row.little is not None]
    assert all(row.why for row in outcome.rows if row.metric == "latency" and row.table.startswith("concurrency"))
    assert {1, 2, 4} <= {row.x for row in sweep}
    assert outcome.advice


@pytest.mark.workloads
def test_a_server_that_handles_one_at_a_time_is_recognised() -> None:
    """The raw server sleeps 80 ms in every call, and reads the next line only then."""
    target = Target(command=(sys.executable, str(RAW)))
    outcome = compared(OwnServer(target, tool="stall", arguments={"every": 1, "ms": 80}))
    check = check_of(outcome, "001-3")
    assert check.value == 1, check
    assert "one at a time" in check.measured
    assert check_of(outcome, "001-8").verdict in ("does not hold", UNTOLD)
    assert check_of(outcome, "004-3").value in (1, None)
    assert any("The probe saw nothing" in note for note in outcome.notes)  # it has no SDK to hook into


@pytest.mark.parametrize(
    ("own", "error", "said"),
    [
        (OwnServer(Target(command=("no-such-program-here",)), probe=False), LaunchError, "does not start"),
        (OwnServer(Target(command=(sys.executable, str(RAW))), tool="tea"), OptionError, "no tool tea; it has echo"),
        (OwnServer(Target(command=(sys.executable, str(RAW))), tool="refuse"), OptionError, "no such item"),
        (OwnServer(Target(command=(sys.executable, str(RAW))), tool="exit"), LaunchError, "exit"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(own: OwnServer, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        compared(own)
    assert said in str(caught.value)


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_calls, "ANSWER_S", 4.0)  # of the listing before it, too
    with pytest.raises(LaunchError, match="never was not answered within 4 s"):
        compared(OwnServer(Target(command=(sys.executable, str(RAW))), tool="never", probe=False))


def test_what_was_measured_before_a_crash_is_kept(tmp_path: Path) -> None:
    bench = Bench(quick=True)
    target = Target(command=(sys.executable, str(RAW)))

    async def run() -> None:
        with pytest.raises(LaunchError):
            await compare(OwnServer(target, tool="exit", arguments={"at": 40}, probe=False), bench)

    anyio.run(run)
    assert {row.label for row in bench.outcome().rows} >= {"list tools", "tool exit"}


@pytest.mark.workloads
def test_the_command_line_runs_it_and_saves_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} {SERVER} {tmp_path / 'calls'}"
    saved = tmp_path / "own.json"
    code = cli.main(["bench", "--quick", "--server", command, "--tool", "nap", "--json", str(saved)])
    out, err = capfd.readouterr()
    assert code == 0, err
    assert "concurrency sweep of tool nap" in out
    assert json.loads(saved.read_text())["results"][0]["name"] == "own-server"
    assert cli.main(["compare", str(saved), str(saved)]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--server", "a", "waves"], "for a server of your own"),
        (["--server", "a", "--arguments", "{}"], "--arguments belongs to --tool"),
        (["--server", "a", "--tool", "b", "--arguments", "["], "--arguments is no JSON"),
        (["--server", "a", "--call", "b=["], "--call b=[ is no JSON"),
        (["--server", "a", "--call", "b=3"], "--call b=3 is 3; expected a tool and an object"),
        (["--server", "a", "--tool", "b", "--yes"], "--tool calls one tool and no other"),
        (["--server", "a", "--start-timeout", "0"], "--start-timeout is 0; expected more than 0"),
        (["--url", "localhost"], "is no URL"),
    ],
)
def test_bad_use_is_a_sentence(capfd: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert said in capfd.readouterr().err
