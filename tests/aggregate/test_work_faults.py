"""A real server whose calls do work that is not needed: each fault is named, neither its mended twin nor a near miss.

One server on stdio under `mcp-probe run`; see its module. What it does is counted; nothing rests on how long it takes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.raw_clients import LIMIT_S, StdioClient
from tests.aggregate.live_faults import findings, is_right, line_in
from tests.rounds import until_right

SERVER = Path(__file__).with_name("work_faults_server.py")
ROOT = Path(__file__).resolve().parents[2]

BURSTS = [  # (tool, calls at once, how often)
    ("cold_near", 1, 14), ("cold_fault", 1, 14), ("cold_mended", 1, 14),
    ("stampede_fault", 4, 1), ("stampede_fault", 1, 14),
    ("stampede_mended", 4, 1), ("stampede_mended", 1, 14),
    ("stampede_near", 4, 1), ("stampede_near", 1, 14),
    ("spin_fault", 1, 1), ("spin_mended", 1, 1), ("spin_near", 1, 1),
    ("log_fault", 1, 3), ("log_mended", 1, 3), ("log_near", 1, 2),
]  # fmt: skip

FAULTS = [
    ("cold-start", "cold"),
    ("cold-start-stampede", "stampede"),
    ("busy-spin", "spin"),
    ("slow-error-logging", "log"),
]


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A machine that is short of CPU makes warm calls slow and samples rare: such a run is made again."""
    return until_right(
        lambda: serve(tmp_path_factory.mktemp("work")),
        lambda found: all(is_right(found, code, name) for code, name in FAULTS),
    )


def serve(folder: Path) -> dict[str, Any]:
    for name, seconds in (("slow_to_import", 1.5), ("slow_at_start", 0.4)):
        (folder / f"{name}.py").write_text(f"import time\n\ntime.sleep({seconds})\n", "utf-8")
    with StdioClient([sys.executable, str(SERVER), str(folder)], folder, {"PYTHONPATH": str(ROOT)}) as client:
        for name in ("near", "fault", "mended"):
            client.call(name, f"abandoned_{name}")
            until((folder / f"{name}.began").exists)
        cancelled = [cancel(client, name) for name in ("fault", "mended")]
        until((folder / "mended.ended").exists)
        looked_after_s = time.monotonic() - cancelled[1]
        client.wait_for("near", client.ask("order", "ping"))  # the server has read the cancellations
        read = time.monotonic()
        for tool, calls, times in BURSTS:
            for number in range(times):
                client.wait_for(*(client.call(f"{tool} {calls} {number} {n}", tool) for n in range(calls)))
        time.sleep(max(0.0, read + 1.1 - time.monotonic()))
        (folder / "go").touch()
        until((folder / "fault.ended").exists)
    failed = {id for id, (_, answer) in client.answers.items() if answer.get("result", {}).get("isError")}
    assert all(id.startswith("log_") for id in failed), client.stderr
    assert len(failed) == 8
    found: dict[str, Any] = client.summary
    return {**found, "looked_after_s": looked_after_s}


@pytest.fixture(scope="module")
def backlogs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return until_right(
        lambda: serve_backlogs(tmp_path_factory),
        lambda found: [name for name, one in found.items() if findings(one, "dispatch-backlog")] == ["fault"],
    )


def serve_backlogs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Summaries of three servers beside each other: of the requests of a round one is answered, or all; or a burst."""
    sent = {"fault": (0, 4, 1), "mended": (0, 4, 4), "near": (100, 0, 4)}  # (at first, in a round, answers in a round)
    folders = {name: tmp_path_factory.mktemp(name) for name in sent}
    with ExitStack() as stack:
        for folder in folders.values():
            (folder / "slow_at_start.py").touch()
        started = {  # all of them, before the first is waited for
            name: StdioClient([sys.executable, str(SERVER), str(folder)], folder, {"PYTHONPATH": str(ROOT)})
            for name, folder in folders.items()
        }
        clients = {name: stack.enter_context(client) for name, client in started.items()}
        for name, client in clients.items():  # first: later samples of the process are sure to have it
            client.wait_for(client.call("say", "say", text="ä log line", how=name))
        for name, (at_first, _, _) in sent.items():
            for number in range(at_first):
                clients[name].call(f"first {number}", "take")
        for number in range(24):
            for name, (_, calls, answers) in sent.items():
                for call in range(calls):
                    clients[name].call(f"take {number} {call}", "take")
                clients[name].wait_for(clients[name].call(f"give {number}", "give", turns=answers))
            time.sleep(0.25)
        for client in clients.values():
            client.wait_for(client.call("last", "give", turns=200))
            client.wait_for(*client.sent)
    return {name: client.summary for name, client in clients.items()}


def cancel(client: StdioClient, id: str) -> float:
    """Cancel a request, and return when."""
    params = {"requestId": id, "reason": "nobody waits for it"}
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    return time.monotonic()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, is_so
        time.sleep(0.01)


@pytest.mark.parametrize(("code", "name"), FAULTS)
def test_a_fault_is_named_and_neither_its_mended_twin_nor_its_near_miss(
    summary: dict[str, Any], code: str, name: str
) -> None:
    found = findings(summary, code).keys()
    assert f"{name}_fault" in found, summary["findings"]
    assert not {f"{name}_mended", f"{name}_near"} & found


def test_a_cold_start_names_the_import_and_its_line(summary: dict[str, Any]) -> None:
    finding = findings(summary, "cold-start")["cold_fault"]
    assert finding["severity"] == "info", "a start is never the verdict"
    assert finding["evidence"]["imports"] == "slow_to_import"
    assert finding["evidence"]["where"].endswith(line_in(SERVER, "late"))
    assert finding["evidence"]["warm_calls"] in (12, 13)  # the second may arrive before the first's flush has returned


def test_a_stampede_counts_those_that_paid_and_what_one_start_would_save(summary: dict[str, Any]) -> None:
    evidence = findings(summary, "cold-start-stampede")["stampede_fault"]["evidence"]
    assert (evidence["calls"], evidence["warm_calls"]) == (4, 14)
    assert evidence["what"] == "subprocess sleep"
    assert evidence["paid_ms"] - evidence["saved_ms"] == pytest.approx(evidence["cold_ms"])
    assert evidence["saved_ms"] == pytest.approx(evidence["paid_ms"] * 3 / 4, rel=0.2)


def test_work_for_nobody_is_counted_from_the_cancellation_on(summary: dict[str, Any]) -> None:
    """The job ended at least 1.1 s after the server had read that nobody wants it."""
    found = findings(summary, "abandoned-work")
    late = summary["looked_after_s"] > 0.8  # on this machine; the job looks each 10 ms
    slow = {"abandoned_mended"} if late else set()
    assert found.keys() - slow == {"abandoned_fault"}, summary["executors"]
    evidence = found["abandoned_fault"]["evidence"]
    assert evidence["jobs"] == 1 and evidence["wasted_ms"] == evidence["longest_ms"] >= 1_100.0
    assert evidence["pool"] == "anyio default limiter" and 0 < evidence["pool_share"] <= 1


def test_a_spin_counts_its_resumptions(summary: dict[str, Any]) -> None:
    finding = findings(summary, "busy-spin")["spin_fault"]
    assert finding["evidence"]["resumptions"] == pytest.approx(120_000, rel=0.001)
    assert finding["evidence"]["share"] > 0.99


def test_each_traceback_counts_that_calls_have_logged(summary: dict[str, Any]) -> None:
    """The handler sleeps for 30 ms."""
    finding = findings(summary, "slow-error-logging")["log_fault"]
    assert (finding["confidence"], finding["evidence"]["count"], finding["evidence"]["errors"]) == ("exact", 3, 3)
    assert finding["evidence"]["mean_ms"] >= 30.0
    rows = {row["name"]: row["measures"]["errors_logged"]["mean"] for row in summary["operations"]}
    assert (rows["log_mended"], rows["log_near"], rows["spin_fault"]) == (1.0, 1.0, 0.0)


def test_a_backlog_is_named_and_neither_its_mended_twin_nor_a_burst(backlogs: dict[str, dict[str, Any]]) -> None:
    """Each round three requests more come than are answered."""
    assert [name for name, found in backlogs.items() if findings(found, "dispatch-backlog")] == ["fault"]
    [finding] = findings(backlogs["fault"], "dispatch-backlog").values()
    evidence = finding["evidence"]
    assert evidence["operation"] == "take" and evidence["in_flight_after"] <= 24 * 3 + 4
    came, ended = (evidence[name] * evidence["seconds"] for name in ("arrivals_per_s", "answers_per_s"))
    assert came - ended == pytest.approx(evidence["in_flight_after"] - evidence["in_flight_before"])


def test_what_is_printed_is_named_and_neither_what_goes_to_stderr_nor_elsewhere(
    backlogs: dict[str, dict[str, Any]],
) -> None:
    """mcp 2.x keeps its messages apart. The line is 11 bytes long and has an end."""
    assert [name for name, found in backlogs.items() if findings(found, "stdout-pollution")] == ["fault"]
    [finding] = findings(backlogs["fault"], "stdout-pollution").values()
    evidence = finding["evidence"]
    assert (finding["severity"], evidence["bytes"], evidence["reaches_client"]) == ("warn", 12, 0)
    assert evidence["where"].endswith(line_in(SERVER, "printed"))
