"""The page of ``mcp-probe load`` as a file: what the terminal says, and what a waiting client leaves out, drawn."""

from __future__ import annotations

from mcp_probe.report import figures
from mcp_probe.report.page.document import headed, page_of
from mcp_probe.report.page.plots import Place, Plot, Series, figure
from mcp_probe.workloads.load.page import blocks
from mcp_probe.workloads.load.result import Latency, LoadResult

SHARES = ("p50", "p90", "p99", "p99.9", "max")


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
    rows = {
        "offered": [each.due / width_s for each in slices],
        "sent": [each.sent / width_s for each in slices],
        "answered": [each.answered / width_s for each in slices],
    }
    series = tuple(
        Series(name, tuple(Place(round(each.start_s, 1), rate) for each, rate in zip(slices, values, strict=True)))
        for name, values in rows.items()
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
    values = (latency.p50, latency.p90, latency.p99, latency.p999, latency.max)
    return tuple(Place(name, value) for name, value in zip(SHARES, values, strict=True))


def _window(result: LoadResult) -> str:
    rows = {"p50": [each.p50 for each in result.slices], "longest": [each.max for each in result.slices]}
    series = tuple(
        Series(
            name, tuple(Place(round(each.start_s, 1), value) for each, value in zip(result.slices, values, strict=True))
        )
        for name, values in rows.items()
    )
    remark = "Seconds since the window began, by when requests were due."
    return _drawn(Plot("Latency over the window", "lines", series, figures.duration, log_y=True, remark=remark))


def _drawn(plot: Plot) -> str:
    """Empty where nothing was answered."""
    if not any(place.value is not None for one in plot.series for place in one.places):
        return ""
    return f'<div class="charts">{figure(plot)}</div>'
