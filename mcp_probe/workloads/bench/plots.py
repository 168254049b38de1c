"""Draws charts with matplotlib (extra ``bench``): documented pale or dashed, measured full, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from mcp_probe.record import private_file
from mcp_probe.report.page.plots import Place, Plot
from mcp_probe.workloads.bench.charts import charts_of
from mcp_probe.workloads.bench.shapes import Results

# Told apart with every kind of colour vision. Source: Okabe and Ito, https://jfly.uni-koeln.de/color/.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#666666")
INK, FAINT = "#24292f", "#8b949e"
_STYLE: Any = {  # its stubs want each key as a literal
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e1e4e8",
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "mcp_probe",
    "text.parse_math": False,  # a name with two $ is a name
    "legend.frameon": False,
    "legend.fontsize": 8,
}
_MOST_LABELLED = 24
_WRAP = 11


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Every chart as SVG and as PNG; returns the SVG files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts_of(results):
        path = folder / f"{chart.name}.svg"
        private_file.write(path, image(chart.plot, "svg"))
        private_file.write(path.with_suffix(".png"), image(chart.plot, "png"))
        written.append(path)
    return written


def image(plot: Plot, kind: str) -> bytes:
    """``plot`` as a picture, the same bytes for the same figures; ``kind``: svg or png."""
    with rc_context(_STYLE):
        figure = draw(plot)
        paper = BytesIO()
        stamp: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(paper, format=kind, dpi=110, metadata=stamp)
    return paper.getvalue()


def draw(plot: Plot) -> Figure:
    """The figure; call it within the style of :func:`image`."""
    places = len({place.x for one in plot.series for place in one.places})
    bars = places * len(plot.series) if plot.kind != "lines" else 0
    figure = Figure(
        figsize=(min(13.0, max(6.8, 0.62 * bars + 1.5, 1.15 * places * (bars > 0) + 1.5)), 4.0), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    (_lines if plot.kind == "lines" else _bars)(axes, plot)
    axes.set_ylabel(plot.y_name)
    axes.set_xlabel(plot.x_name)
    axes.grid(axis="y")
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        bottom, top = axes.get_ylim()
        axes.set_ylim(min(0.0, bottom), top + 0.04 * abs(top))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    rows = _legend(axes, plot, figure.get_figwidth())
    axes.set_title(plot.title, loc="left", pad=6 + 15 * rows)
    if plot.remark:
        figure.supxlabel(plot.remark, fontsize=7.5, color=FAINT, x=0.99, ha="right")
    return figure


def _lines(axes: Axes, plot: Plot) -> None:
    for one, colour in zip(plot.series, _colours(plot), strict=True):
        documented = [(float(place.x), place.beside) for place in one.places if place.beside is not None]
        measured = [place for place in one.places if place.value is not None]
        if documented:
            axes.plot(
                *zip(*documented, strict=True), color=colour, linestyle=(0, (4, 3)), marker="o", markerfacecolor="white"
            )
        xs, ys = [float(place.x) for place in measured], [place.value or 0.0 for place in measured]
        axes.errorbar(
            xs, ys, yerr=_errors(measured), color=colour, marker="o", capsize=2.5, linewidth=1.8, label=one.name
        )
    if plot.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    ticks = sorted({float(place.x) for one in plot.series for place in one.places})
    axes.set_xticks(ticks, [_tick(tick) for tick in ticks])


def _bars(axes: Axes, plot: Plot) -> None:
    """A cluster per place; in it a pair per series: documented pale and hatched, measured full."""
    labelled = 2 * sum(len(one.places) for one in plot.series) <= _MOST_LABELLED
    names = list(dict.fromkeys(place.x for one in plot.series for place in one.places))
    for index, name in enumerate(names):
        here = [
            (place, colour)
            for one, colour in zip(plot.series, _colours(plot), strict=True)
            for place in one.places
            if place.x == name
        ]
        each = 2 if any(plot.words) else 1
        wide = min(0.8 / (each * len(here)), 0.3)
        for turn, (place, colour) in enumerate(here):
            left = index + (each * turn - each * len(here) / 2 + 0.5) * wide
            measured = left + (each - 1) * wide
            (_ends if plot.kind == "dots" else _pair)(axes, place, left, measured, wide, colour)
            if labelled:
                _label(axes, left, place.beside, place.beside, wide)
                _label(axes, measured, place.value, max(place.value or 0.0, place.high or 0.0), wide)
    axes.set_xticks(range(len(names)), list(map(_wrapped, names)))
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.12)


def _pair(axes: Axes, place: Place, left: float, measured: float, wide: float, colour: str) -> None:
    if place.beside is not None:
        pale: dict[str, Any] = {"facecolor": f"{colour}38", "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
        axes.bar(left, place.beside, wide * 0.92, **pale)
    if place.value is not None:
        whiskers = _errors([place])
        axes.bar(measured, place.value, wide * 0.92, color=colour, yerr=whiskers, ecolor=INK, capsize=2)


def _ends(axes: Axes, place: Place, left: float, measured: float, wide: float, colour: str) -> None:
    """The ends of what would be two bars."""
    if place.beside is not None:
        hollow: dict[str, Any] = {"marker": "o", "markersize": 6, "markerfacecolor": "white", "color": colour}
        axes.plot([left], [place.beside], linestyle="none", **hollow)
    if place.value is not None:
        look: dict[str, Any] = {"marker": "o", "markersize": 6, "ecolor": INK, "capsize": 2, "color": colour}
        axes.errorbar([measured], [place.value], yerr=_errors([place]), linestyle="none", **look)


def _label(axes: Axes, x: float, value: float | None, top: float | None, wide: float) -> None:
    """``value`` in figures, above ``top``: the bar's end or its whisker's."""
    if value is not None and top is not None:
        look: dict[str, Any] = {"ha": "center", "fontsize": 7 if wide > 0.15 else 6, "color": INK}
        axes.annotate(_short(value), (x, top), (0, 5), textcoords="offset points", **look)


def _short(value: float) -> str:
    """What fits over a bar: ``1.41M``, ``0.089``."""
    for scale, unit in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _tick(value: float) -> str:
    if abs(value) >= 1e6:
        return _short(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _errors(places: Sequence[Place]) -> list[list[float]] | None:
    """Distances down and up to the 95 % interval of the median."""
    if any(place.low is None or place.high is None or place.value is None for place in places):
        return None
    down = [(place.value or 0.0) - (place.low or 0.0) for place in places]
    up = [(place.high or 0.0) - (place.value or 0.0) for place in places]
    return [down, up]


def _legend(axes: Axes, plot: Plot, inches: float) -> int:
    """What is pale and what is full, then the series, between title and plot; returns how many lines it takes."""
    first: list[Line2D | Patch] = []
    if not any(plot.words):
        if len(plot.series) < 2:
            return 0
    elif plot.kind != "bars":
        dashed: Any = (0, (4, 3)) if plot.kind == "lines" else "none"
        solid: Any = "-" if plot.kind == "lines" else "none"
        first = [
            Line2D([], [], color=INK, linestyle=dashed, marker="o", markerfacecolor="white", label="documented"),
            Line2D([], [], color=INK, linestyle=solid, marker="o", label="measured"),
        ]
    else:
        first = [
            Patch(facecolor="white", edgecolor=INK, hatch="////", label="documented"),
            Patch(facecolor=INK, label="measured"),
        ]
    if len(plot.series) > 1:
        colours = zip(plot.series, _colours(plot), strict=True)
        first += [Patch(color=colour, label=one.name) for one, colour in colours]
    longest = max(len(str(handle.get_label())) for handle in first)
    columns = max(2, min(len(first), int((inches - 1) / (0.45 + 0.07 * longest))))
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    axes.legend(handles=first, ncols=columns, handlelength=1.6, columnspacing=1.4, **place)
    return -(-len(first) // columns)


def _colours(plot: Plot) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(plot.series))]


def _wrapped(name: float | str) -> str:
    """Names break at blanks, so that neighbours do not run into each other."""
    if not isinstance(name, str):
        return _tick(name)
    lines = [""]
    for word in name.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WRAP:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
