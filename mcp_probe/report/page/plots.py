"""Charts of any page of ours as plain SVG: lines, bars and intervals, in the page's colours, without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Literal

from mcp_probe.report.page.markup import text_of

WIDTH, HEIGHT = 640.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 14.0, 16.0, 36.0
ROW = 24.0
MOST_COLOURS = 9
MOST_LABELLED = 14
_MOST_TICKS = 5

Text = Callable[[float], str]
"""A figure as a reader sees it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a chart. ``beside`` is what it is held against, drawn pale; ``low`` and ``high`` bound ``value``."""

    x: float | str
    value: float | None
    low: float | None = None
    high: float | None = None
    beside: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Places of one colour."""

    name: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart. ``words`` name what is full and what is pale; ``remark`` stands below, the names at the axes.

    ``dots`` are the ends of bars: what a logarithmic axis may show of them.
    """

    title: str
    kind: Literal["lines", "bars", "dots"]
    series: tuple[Series, ...]
    text: Text
    log_x: bool = False
    log_y: bool = False
    words: tuple[str, str] = ("", "")
    remark: str = ""
    x_name: str = ""
    y_name: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """One row of :func:`intervals`: a change, its bounds, what it reads as, and how it was judged (a role)."""

    name: str
    value: float
    low: float
    high: float
    told: str
    role: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to [0, 1]."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where ``value`` lies; outside of the axis at its end."""
        low, high, value = (
            (log10(self.low), log10(self.high), log10(max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> list[float]:
        """A few round values within it."""
        if self.log:
            first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
            every = max(1, ceil((last - first + 1) / (_MOST_TICKS + 1)))
            decades = [10.0**power for power in range(first, last + 1, every)]
            return decades if len(decades) > 1 else [self.low, *decades, self.high]
        raw = (self.high - self.low) / _MOST_TICKS
        power = 10.0 ** floor(log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
        first = ceil(self.low / step - 1e-9)
        return [at * step for at in range(first, floor(self.high / step + 1e-9) + 1)]


def axis_of(values: Sequence[float], *, log: bool, zero: bool = True) -> Axis:
    """An axis that holds ``values``; a linear one begins at 0 where ``zero``."""
    known = [value for value in values if isfinite(value) and (value > 0 or not log)]
    if not known:
        return Axis(0.1, 1.0, True) if log else Axis(0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        low, high = 10 ** (floor(2 * log10(low)) / 2), 10 ** (ceil(2 * log10(high) + 0.01) / 2)
        return Axis(low, high, True)
    low = min(0.0, low) if zero else low
    return Axis(low, high + 0.06 * (high - low) if high > low else low + 1.0)


def figure(plot: Plot) -> str:
    """``plot`` as a figure of HTML, with its legend."""
    values = [value for one in plot.series for place in one.places for value in _values(place)]
    y = axis_of(values, log=plot.log_y)
    drawn = _lines(plot, y) if plot.kind == "lines" else _bars(plot, y)
    remark = f'<p class="dim">{text_of(plot.remark)}</p>' if plot.remark else ""
    return (
        f'<figure class="plot"><figcaption>{text_of(plot.title)}</figcaption>{_legend(plot)}'
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{text_of(_told(plot))}">'
        f"{''.join(_grid(y, plot.text))}{''.join(drawn)}{_axes(plot)}</svg>{remark}</figure>"
    )


def _axes(plot: Plot) -> str:
    """What both axes are of, at their ends."""
    y = f'<text x="0" y="10">{text_of(plot.y_name)}</text>' if plot.y_name else ""
    across = f'<text x="{WIDTH - RIGHT:g}" y="{HEIGHT - 4:g}" text-anchor="end">{text_of(plot.x_name)}</text>'
    return y + (across if plot.x_name else "")


def _values(place: Place) -> Iterator[float]:
    yield from (value for value in (place.value, place.low, place.high, place.beside) if value is not None)


def _told(plot: Plot) -> str:
    """The chart as a sentence, for who does not see it."""
    told = [
        f"{f'{one.name} ' if one.name else ''}{_name(place.x, plot)} {plot.text(place.value)}"
        for one in plot.series
        for place in one.places
        if place.value is not None
    ]
    return f"{plot.title}: {', '.join(told)}"


def _legend(plot: Plot) -> str:
    full, pale = plot.words
    kinds = [f'<span><i class="full"></i>{text_of(full)}</span>' if full else ""]
    kinds.append(f'<span><i class="pale"></i>{text_of(pale)}</span>' if pale else "")
    names = [
        f'<span><i class="c{at % MOST_COLOURS}"></i>{text_of(one.name)}</span>'
        for at, one in enumerate(plot.series)
        if one.name and len(plot.series) > 1
    ]
    entries = "".join((*kinds, *names))
    return f'<div class="legend">{entries}</div>' if entries else ""


def _y(axis: Axis, value: float) -> float:
    return TOP + (1 - axis.at(value)) * (HEIGHT - TOP - BOTTOM)


def _grid(axis: Axis, text: Text) -> Iterator[str]:
    for tick in axis.ticks():
        y = _y(axis, tick)
        yield f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{text_of(text(tick))}</text>'


def _name(x: float | str, plot: Plot) -> str:
    if isinstance(x, str):
        return x
    return f"{x:,.0f}" if x == round(x) else f"{x:.4g}"


def _title(words: str) -> str:
    return f"<title>{text_of(words)}</title>"


# --- lines ----------------------------------------------------------------------------------------


def _lines(plot: Plot, y: Axis) -> Iterator[str]:
    """Along numbers where all places are numbers, else at equal distances."""
    places = list(dict.fromkeys(place.x for one in plot.series for place in one.places))
    numbers = [float(x) for x in places if not isinstance(x, str)]
    if len(numbers) == len(places):
        axis = Axis(min(numbers), max(max(numbers), min(numbers) + 1e-9), plot.log_x)
        across = {x: axis.at(float(x)) for x in places}
    else:
        across = {x: (at + 0.5) / len(places) for at, x in enumerate(places)}
    inner = WIDTH - LEFT - RIGHT
    where = {x: LEFT + (0.03 + 0.94 * share) * inner for x, share in across.items()}
    yield from _names(places, where, plot)
    for at, one in enumerate(plot.series):
        yield from _line(one, at, where, y, plot)


def _names(places: Sequence[float | str], where: dict[float | str, float], plot: Plot) -> Iterator[str]:
    """Under the axis; of names that would run into each other only some."""
    last = -1e9
    for x in places:
        name = _name(x, plot)
        width = 6.4 * len(name) + 8
        if where[x] - width / 2 > last:
            last = where[x] + width / 2
            yield f'<text x="{where[x]:.1f}" y="{HEIGHT - BOTTOM + 17:g}" text-anchor="middle">{text_of(name)}</text>'


def _line(one: Series, colour: int, where: dict[float | str, float], y: Axis, plot: Plot) -> Iterator[str]:
    def path(points: Sequence[tuple[float, float]]) -> str:
        return "".join(f"{'L' if at else 'M'}{x:.1f} {_y(y, value):.1f}" for at, (x, value) in enumerate(points))

    beside = [(where[place.x], place.beside) for place in one.places if place.beside is not None]
    value = [(where[place.x], place.value) for place in one.places if place.value is not None]
    if beside:
        yield f'<path class="pale c{colour % MOST_COLOURS}" d="{path(beside)}"/>'
    if value:
        yield f'<path class="c{colour % MOST_COLOURS}" d="{path(value)}"/>'
    for place in one.places:
        if place.value is None:
            continue
        at = where[place.x]
        if place.low is not None and place.high is not None:
            yield _whisker(at, _y(y, place.low), _y(y, place.high))
        told = f"{one.name} {_name(place.x, plot)}: {plot.text(place.value)}".strip()
        yield (
            f'<circle class="c{colour % MOST_COLOURS}" cx="{at:.1f}" cy="{_y(y, place.value):.1f}" r="3.4">'
            f"{_title(told)}</circle>"
        )


def _whisker(x: float, low: float, high: float) -> str:
    return f'<path class="whisker" d="M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6"/>'


# --- bars -----------------------------------------------------------------------------------------


def _bars(plot: Plot, y: Axis) -> Iterator[str]:
    """A cluster a place, in it one bar a series, or two: what it is held against, pale, and it."""
    places = list(dict.fromkeys(place.x for one in plot.series for place in one.places))
    inner = (WIDTH - LEFT - RIGHT) / max(1, len(places))
    is_pair = any(place.beside is not None for one in plot.series for place in one.places)
    count = sum(2 if is_pair else 1 for one in plot.series)
    wide = min(44.0, 0.8 * inner / count)
    labelled = count * len(places) <= MOST_LABELLED
    for index, x in enumerate(places):
        middle = LEFT + (index + 0.5) * inner
        yield from _under(_name(x, plot), middle, inner)
        left = middle - count * wide / 2
        for colour, one in enumerate(plot.series):
            found = next((place for place in one.places if place.x == x), None)
            for value, kind in _pair(found, is_pair):
                if value is not None:
                    drawn = _dot if plot.kind == "dots" else _bar
                    yield drawn(plot, y, one.name, x, value, left, wide, f"{kind}c{colour % MOST_COLOURS}")
                top = value
                if found is not None and not kind and found.low is not None and found.high is not None:
                    yield _whisker(left + wide / 2, _y(y, found.low), _y(y, found.high))
                    top = max(found.high, found.value or 0.0)
                if labelled and value is not None and top is not None:
                    yield _label(plot.text(value), left + wide / 2, _y(y, top) - 4)
                left += wide


def _pair(place: Place | None, is_pair: bool) -> list[tuple[float | None, str]]:
    beside = [(None if place is None else place.beside, "pale ")] if is_pair else []
    return [*beside, (None if place is None else place.value, "")]


def _bar(plot: Plot, y: Axis, name: str, x: float | str, value: float, left: float, wide: float, kind: str) -> str:
    top, foot = _y(y, value), HEIGHT - BOTTOM if y.log else _y(y, 0.0)
    top, foot = min(top, foot), max(top, foot)
    told = " ".join(filter(None, (name, _name(x, plot), plot.words[1] if "pale" in kind else plot.words[0])))
    return (
        f'<rect class="{kind}" x="{left + 1:.1f}" y="{top:.1f}" width="{wide - 2:.1f}" '
        f'height="{max(1.0, foot - top):.1f}">{_title(f"{told}: {plot.text(value)}")}</rect>'
    )


def _dot(plot: Plot, y: Axis, name: str, x: float | str, value: float, left: float, wide: float, kind: str) -> str:
    told = " ".join(filter(None, (name, _name(x, plot), plot.words[1] if "pale" in kind else plot.words[0])))
    pale = ' opacity=".4"' if "pale" in kind else ""
    return (
        f'<circle class="{kind}" cx="{left + wide / 2:.1f}" cy="{_y(y, value):.1f}" r="4"{pale}>'
        f"{_title(f'{told}: {plot.text(value)}')}</circle>"
    )


def _label(figure: str, x: float, y: float) -> str:
    """Its unit stands at the axis."""
    return f'<text class="on" x="{x:.1f}" y="{y:.1f}">{text_of(figure.partition(" ")[0])}</text>'


def _under(name: str, middle: float, wide: float) -> Iterator[str]:
    """A name below the axis, in two lines where one is too long."""
    letters = max(4, int(wide / 6.4))
    lines = [""]
    for word in name.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > letters:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    for at, line in enumerate(lines[:2]):
        shown = line if len(line) <= letters else f"{line[: letters - 1]}…"
        more = "…" if at == 1 and len(lines) > 2 and not shown.endswith("…") else ""
        y = HEIGHT - BOTTOM + 15 + 13 * at
        yield f'<text x="{middle:.1f}" y="{y:g}" text-anchor="middle">{text_of(shown + more)}{_title(name)}</text>'


# --- intervals --------------------------------------------------------------------------------------


def intervals(title: str, rows: Sequence[Interval], *, nothing: float, log: bool, text: Text) -> str:
    """Changes with their bounds, one below the other, around a line where ``nothing`` has changed."""
    values = [value for row in rows for value in (row.low, row.high, row.value)] + [nothing]
    if log:
        far = max(1.2, *(max(value, 1 / value) for value in values if value > 0))
        axis = Axis(1 / far**1.08, far**1.08, True)
    else:
        far = max(map(abs, values)) or 1.0
        axis = Axis(-1.08 * far, 1.08 * far)
    left, right = 128.0, 92.0
    height = len(rows) * ROW + 26

    def across(value: float) -> float:
        return left + axis.at(value) * (WIDTH - left - right)

    parts = [_cross(across(tick), len(rows) * ROW, text(tick)) for tick in _around(axis, nothing)]
    parts.append(
        f'<line class="zero" x1="{across(nothing):.1f}" x2="{across(nothing):.1f}" y1="0" y2="{len(rows) * ROW:g}"/>'
    )
    for at, row in enumerate(rows):
        y = at * ROW + ROW / 2
        parts.append(
            f'<text class="label" x="0" y="{y + 4:g}">{text_of(row.name)}</text>'
            f'<line class="range {row.role}" y1="{y:g}" y2="{y:g}" '
            f'x1="{across(row.low):.1f}" x2="{across(row.high):.1f}"/>'
            f'<circle class="{row.role}" cx="{across(row.value):.1f}" cy="{y:g}" r="4">{_title(row.told)}</circle>'
            f'<text class="{row.role}" x="{WIDTH:g}" y="{y + 4:g}" text-anchor="end">{text_of(text(row.value))}</text>'
        )
    label = text_of(f"{title}: {'; '.join(row.told for row in rows)}")
    return (
        f'<figure class="plot"><figcaption>{text_of(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}">{"".join(parts)}</svg></figure>'
    )


def _around(axis: Axis, nothing: float) -> list[float]:
    """Ticks at the line, and halfway to both ends."""
    if axis.log:
        half = axis.high**0.5
        return [1 / half, nothing, half]
    return [-axis.high / 2, nothing, axis.high / 2]


def _cross(x: float, height: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:g}"/>'
        f'<text x="{x:.1f}" y="{height + 16:g}" text-anchor="middle">{text_of(label)}</text>'
    )
