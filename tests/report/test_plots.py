"""Charts: where values lie, what is told beside them, and that nothing of a name is markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.report import figures
from mcp_probe.report.page.plots import HEIGHT, WIDTH, Axis, Interval, Place, Plot, Series, axis_of, figure, intervals

SIZES = st.floats(1e-6, 1e12)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html)


def plot(*series: Series, kind: str = "bars", **given: object) -> Plot:
    return Plot("time", kind, series, figures.duration, **given)  # type: ignore[arg-type]


@given(st.lists(SIZES, min_size=1), st.booleans())
def test_an_axis_holds_every_value_in_its_order_and_has_ticks(values: list[float], log: bool) -> None:
    axis = axis_of(values, log=log)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert all(axis.low * (1 - 1e-6) - 1e-9 <= tick <= axis.high * (1 + 1e-6) for tick in ticks)


def test_a_logarithmic_axis_gives_factors_the_same_length() -> None:
    axis = Axis(1.0, 10_000.0, log=True)
    assert axis.at(10.0) == pytest.approx(0.25)
    assert axis.at(1_000.0) - axis.at(100.0) == pytest.approx(0.25)
    assert axis.at(0.0) == 0.0


def test_bars_are_as_high_as_their_values() -> None:
    drawn = parsed(figure(plot(Series("", (Place("a", 50.0), Place("b", 100.0))))))
    first, second = (float(bar.attrib["height"]) for bar in drawn.iter("rect"))
    assert second == pytest.approx(2 * first, rel=0.01)


def test_what_a_value_is_held_against_stands_beside_it() -> None:
    places = (Place("a", 50.0, 45.0, 55.0, beside=40.0),)
    drawn = parsed(figure(plot(Series("", places), words=("measured", "documented"))))
    titles = [title.text for title in drawn.iter("title") if title.text and ":" in title.text]
    assert titles == ["a documented: 40\u00a0ms", "a measured: 50\u00a0ms"]


def test_lines_stay_inside_and_name_each_place() -> None:
    series = [Series(name, tuple(Place(float(x), 10.0 * x + 1) for x in range(8))) for name in ("one", "two")]
    drawn = parsed(figure(plot(*series, kind="lines")))
    dots = list(drawn.iter("circle"))
    assert len(dots) == 16
    assert all(0 <= float(dot.attrib["cx"]) <= WIDTH and 0 <= float(dot.attrib["cy"]) <= HEIGHT for dot in dots)
    assert "one" in "".join(drawn.itertext())


def test_a_place_without_a_value_is_left_out() -> None:
    drawn = parsed(figure(plot(Series("", (Place("a", None), Place("b", 2.0))), kind="lines")))
    assert len(list(drawn.iter("circle"))) == 1


def test_an_interval_lies_on_its_side_of_the_line() -> None:
    rows = [
        Interval("slower", 1.5, 1.2, 1.9, "slower: +50%", "critical"),
        Interval("faster", 0.5, 0.4, 0.7, "faster: -50%", "good"),
        Interval("open", 1.0, 0.8, 1.3, "open: +0%", "dim"),
    ]
    drawn = parsed(intervals("Change", rows, nothing=1.0, log=True, text=str))
    (zero,) = (float(line.attrib["x1"]) for line in drawn.iter("line") if line.attrib["class"] == "zero")
    ranges = [line.attrib for line in drawn.iter("line") if line.attrib["class"].startswith("range")]
    slower, faster, open_ = ((float(one["x1"]), float(one["x2"])) for one in ranges)
    assert zero < slower[0] < slower[1]
    assert faster[0] < faster[1] < zero
    assert open_[0] < zero < open_[1]


def test_names_of_strangers_are_text() -> None:
    evil = "<script>alert(1)</script>"
    found = figure(plot(Series(evil, (Place(evil, 1.0),)), Series("b", (Place(evil, 2.0),)), remark=evil))
    found += intervals(evil, [Interval(evil, 1.0, 0.9, 1.1, evil, "dim")], nothing=1.0, log=True, text=lambda _: evil)
    assert "<script" not in found
