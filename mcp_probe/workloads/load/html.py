"""The page of ``mcp-probe load`` as a file: what the terminal says, and what a waiting client leaves out, drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_probe.report import figures
from mcp_probe.report.page.document import headed, page_of
from mcp_probe.report.page.plots import Place, Plot, Series, figure
from mcp_probe.workloads.load.page import blocks
from mcp_probe.workloads.load.result import Latency, LoadResult, Slice


def html(result: LoadResult) -> str:
    """The whole file."""
    charts = {"Rates": _rates(result), "Latency": _latency(result), "Over the window": _window(result)}
    return page_of(f"load · {result.server or result.target}", headed(blocks(result), charts))


def _rates(result: LoadResult) -> str:
    """What was due, sent and answered in each tenth of the window; empty where that is no rate."""
    slices = result.slices
    if len(slices) < 2:
        return ""
    width_s = slices[1].start_s - slices[0].start_s
    series = (
        _over_time("offered", slices, lambda each: each.due / width_s),
        _over_time("sent", slices, lambda each: each.sent / width_s),
        _over_time("answered", slices, lambda each: each.answered / width_s),
    )
    remark = "Seconds since the window began. Offered above sent: the generator was late."
    return _drawn(Plot("Requests a second", "lines", series, lambda rate: f"{figures.decimal(rate)}/s", remark=remark))


def _latency(result: LoadResult) -> str:
    """The same requests, counted in both ways by both clients."""
    phases = [
        ("open loop, from when due", result.open.due_to_answer),
        ("open, from sending", result.open.sent_to_answer),
    ]
    if result.closed is not None:
        phases.append(("closed loop, from sending", result.closed.sent_to_answer))
        phases.append(("closed, from when due", result.closed.due_to_answer))
    series = tuple(Series(name, _percentiles(latency)) for name, latency in phases)
    return _drawn(Plot("Latency by percentile", "lines", series, figures.duration, log_y=True))


def _percentiles(latency: Latency) -> tuple[Place, ...]:
    values = {"p50": latency.p50, "p90": latency.p90, "p99": latency.p99, "p99.9": latency.p999, "max": latency.max}
    return tuple(Place(name, value) for name, value in values.items())


def _window(result: LoadResult) -> str:
    series = (
        _over_time("p50", result.slices, lambda each: each.p50),
        _over_time("longest", result.slices, lambda each: each.max),
    )
    remark = "Seconds since the window began, by when requests were due."
    return _drawn(Plot("Latency over the window", "lines", series, figures.duration, log_y=True, remark=remark))


def _over_time(name: str, slices: Sequence[Slice], value_of: Callable[[Slice], float | None]) -> Series:
    return Series(name, tuple(Place(round(each.start_s, 1), value_of(each)) for each in slices))


def _drawn(plot: Plot) -> str:
    """Empty where nothing was answered."""
    if not any(place.value is not None for one in plot.series for place in one.places):
        return ""
    return f'<div class="charts">{figure(plot)}</div>'
