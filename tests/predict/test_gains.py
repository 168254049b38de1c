"""Gains of findings: there where a simulation holds, and nowhere else."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Finding, Frame, Header, Summary
from mcp_probe.predict import gains
from mcp_probe.predict.change import Change
from mcp_probe.predict.gains import Collected, changes_for, with_gains
from mcp_probe.predict.what_if import window_of
from mcp_probe.predict.workload import ANSWER, DELAY, HOLD, RELEASE, Resource, Step
from mcp_probe.report import jsonfile
from mcp_probe.report.console import render
from tests.aggregate.faults import FAULTS
from tests.predict.made import MS, call, workload
from tests.predict.replayed import recording_of

LOCK = "asyncio.Lock made at server.py:7"


def frames() -> list[Frame]:
    unit = (
        Step(DELAY, 0, MS),
        Step(HOLD, 0, 0),
        Step(DELAY, 30 * MS, MS, ends=((RELEASE, 0),)),
        Step(DELAY, 0, 0, ends=((ANSWER, 0),)),
    )
    calls = []
    for burst in range(8):
        after = tuple(range(6 * burst - 6, 6 * burst)) if burst else ()
        calls += [call(unit, at=MS, after=after, operation="update") for _ in range(6)]
    return recording_of(workload(calls, Resource(LOCK, "lock", 1)))


def summary(of: Iterable[Frame]) -> Summary:
    fold = Fold()
    for frame in of:
        fold.add(frame)
    finding = Finding(
        "serial-handler",
        "warn",
        "exact",
        "update",
        "It waits.",
        "Hold it for less.",
        {"object": LOCK, "narrow_ms": 9.0},
    )
    other = Finding("gc-pause", "warn", "exact", "server", "It pauses.", "Freeze the heap.", {})
    return replace(fold.summary(), findings=(finding, other))


def test_a_finding_whose_advice_can_be_simulated_has_its_gain() -> None:
    made = frames()
    found = with_gains(summary(made), made).findings[0]
    assert found.gain is not None
    assert (found.gain.operation, found.gain.percentile) == ("update", 95)
    assert found.gain.changes == (f"--narrow '{LOCK}'",)
    assert found.gain.before_ms > 180
    assert 31 <= found.gain.after_ms <= 40


def test_a_blocking_call_goes_to_threads_of_its_own_where_the_shared_ones_are_all_in_use() -> None:
    made = frames()
    finding = Finding("blocking-call", "warn", "exact", "update", "It blocks.", "Wrap it.", {})
    free = summary(made)
    full = replace(free, executors=FAULTS["transport-starvation"].executors)
    changes = [list(map(str, changes_for(finding, of, window_of(made)))) for of in (free, full)]
    assert changes == [["--offload update"], ["--offload update", "--private-pool update=40"]]


@pytest.mark.parametrize(
    ("library", "changes"),
    [("sqlite3.Cursor.execute without the GIL", (Change("offload", "update"),)), ("re.match", ()), (None, ())],
)
def test_only_c_code_that_lets_others_run_is_predicted_on_a_thread(
    library: str | None, changes: tuple[Change, ...]
) -> None:
    made = frames()
    finding = Finding("cpu-bound-step", "warn", "exact", "update", "It computes.", "Move it.", {"library": library})
    assert changes_for(finding, summary(made), window_of(made)) == changes


def test_advice_that_is_no_change_has_no_gain() -> None:
    made = frames()
    assert with_gains(summary(made), made).findings[1].gain is None


def test_where_the_recording_is_not_full_nothing_is_predicted() -> None:
    made = frames()
    header = made[0]
    assert isinstance(header, Header)
    ordinary = [replace(header, full=False), *made[1:]]
    before = summary(made)
    assert with_gains(before, ordinary) == before
    collected = Collected()
    for frame in ordinary:
        collected.add(frame)
    assert collected.predicted(before) == before


def test_a_gain_is_in_the_report_and_in_its_json() -> None:
    made = frames()
    found = with_gains(summary(made), made)
    text = " ".join(render(found, width=200, color=False, ascii_only=False, stream=io.StringIO()).split())
    assert "Predicted: `update` p95 187 ms → 37 ms (`mcp-probe what-if FILE --narrow" in text
    stream = io.StringIO()
    jsonfile.write(found, stream)
    first, second = json.loads(stream.getvalue())["findings"]
    assert first["gain"]["operation"] == "update"
    assert first["gain"]["changes"] == [f"--narrow '{LOCK}'"]
    assert second["gain"] is None


def test_a_fault_in_predicting_costs_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise KeyError("made up")

    monkeypatch.setattr(gains, "window_of", broken)
    made = frames()
    found = gains.with_gains(summary(made), made)
    assert found.findings == summary(made).findings
    assert "Gains could not be predicted (KeyError: 'made up')" in found.notes[-1]
