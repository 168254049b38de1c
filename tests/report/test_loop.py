from __future__ import annotations

from dataclasses import replace

from mcp_probe.model import ArrivalDelay, LoopSummary, Signals
from mcp_probe.report.console import render
from tests.report.summaries import healthy, make_signals

UNKNOWN = ArrivalDelay(None, None, None, None, None)


def loop(summary: LoopSummary, signals: Signals | None = None) -> str:
    whole = replace(healthy(), loop=summary, signals=signals or make_signals())
    lines = render(whole, width=120, color=False, ascii_only=False, whole=True).split("\n")
    start = next(index for index, line in enumerate(lines) if line.startswith("Event loop"))
    return " ".join(" ".join(lines[start + 1 : lines.index("", start)]).split())


def test_arrival_delay_is_put_into_words() -> None:
    text = loop(LoopSummary(0.7, ArrivalDelay(44.0, 0.0, 148.0, 206.0, 231.0), "exact"))
    assert text.endswith(
        "A request arriving at a random moment waits 44 ms on average: half not at all, one in ten 148 ms or more, "
        "one in a hundred 206 ms or more, the unluckiest 231 ms."
    )


def test_those_who_wait_not_at_all_are_told_once() -> None:
    text = loop(LoopSummary(0.1, ArrivalDelay(0.04, 0.0, 0.0, 0.3, 11.0), "exact"))
    assert text.endswith("on average: nine in ten not at all, one in a hundred 0.30 ms or more, the unluckiest 11 ms.")


def test_an_estimated_loop_carries_the_mark_on_every_figure() -> None:
    text = loop(LoopSummary(0.7, ArrivalDelay(44.0, 1.0, None, None, None), "estimate"))
    assert "~70%" in text
    assert text.endswith("waits ~44 ms on average: half ~1.0 ms or more.")


def test_a_lower_bound_of_zero_is_not_called_no_wait() -> None:
    text = loop(LoopSummary(0.7, ArrivalDelay(44.0, 0.0, None, None, None), "lower"))
    assert "not at all" not in text


def test_busy_time_is_split_by_what_the_system_says() -> None:
    signals = make_signals(busy_ms=1_000.0, loop_cpu_ms=240.0, off_cpu_ms=740.0, run_queue_ms=20.0)
    text = loop(LoopSummary(0.7, ArrivalDelay(1.0, 0.0, 0.0, 1.0, 1.0), "exact"), signals)
    assert "70% of that: 24% computing 74% blocked 2% waiting for a CPU" in text


def test_what_an_idle_loop_waited_for_a_cpu_is_no_more_than_it_was_busy() -> None:
    """Most of it was in the poll. A worker to which nobody spoke showed 1570 %."""
    signals = make_signals(busy_ms=10.0, loop_cpu_ms=7.0, off_cpu_ms=0.0, run_queue_ms=157.0)
    text = loop(LoopSummary(0.001, ArrivalDelay(1.0, 0.0, 0.0, 1.0, 1.0), "exact"), signals)
    assert "70% computing ≤30% waiting for a CPU" in text


def test_a_loop_nobody_could_watch_is_unavailable() -> None:
    assert loop(LoopSummary(None, UNKNOWN, "unavailable")) == "busy – arrival delay –"
    text = " ".join(
        render(replace(healthy(), loop=LoopSummary(None, UNKNOWN, "unavailable")), color=False, whole=True).split()
    )
    assert "event-loop health (not visible on uvloop)" in text


def test_utilization_without_arrival_delay_says_what_is_missing() -> None:
    text = loop(LoopSummary(0.5, UNKNOWN, "exact"))
    assert "50%" in text
    assert text.endswith("A request arriving at a random moment waits –.")
