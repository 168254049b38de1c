"""Which charts rows make, that each is drawn whole, and that the page has them all."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import reproductions
from mcp_probe.report.page.plots import Plot, figure
from mcp_probe.workloads.bench.charts import charts_of, measured_charts
from mcp_probe.workloads.bench.documents import by_document
from mcp_probe.workloads.bench.results import read_results
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.scenarios.documents.doc003 import PLOTS
from tests.workloads.bench.made import check, full, result, results, row, stats


def test_numbers_along_an_axis_make_lines_and_names_make_bars() -> None:
    usual = {"table": "003 CPU-bound", "series": "time", "documented": 9.77, "scale": 1.0}
    models = [row(model, 5.0, x=model, **usual) for model in ("sync", "asyncio")]
    waves, cpu = charts_of(results(*full().results, result(*models)))
    assert (waves.plot.kind, waves.name, waves.plot.title) == ("lines", "001-4-time", "001 §4: time")
    assert (cpu.plot.kind, cpu.name) == ("bars", "003-cpu-bound-time")


def test_documented_figures_are_drawn_at_the_size_that_ran() -> None:
    [waves] = charts_of(full())
    [series] = waves.plot.series
    assert series.name == "pool of 4"
    assert [(place.x, place.beside, place.value) for place in series.places] == [
        (5, 104.0, 105.0),
        (10, 156.5, 158.0),
        (20, 260.5, 265.0),
    ]
    assert "brought to the size that ran" in waves.plot.remark


def test_a_row_without_a_partner_makes_no_chart() -> None:
    assert charts_of(results(result(row()))) == []
    assert charts_of(results(result(row(x=1), row(x=2, documented=None), row(x=3, measured=None)))) == []


def test_what_no_document_has_figures_for_is_drawn_alone() -> None:
    own = [row(f"{x} MB", float(x), table="now results", documented=None, scale=1.0, x=x) for x in (1, 10)]
    [chart] = charts_of(results(result(*own), result(row(x=1, documented=None), row(x=2, documented=None))))
    assert (chart.document, chart.table, chart.plot.words) == ("now", "now results", ("", ""))


def test_series_that_only_repeat_the_places_are_one() -> None:
    rows = [row(name, x=name, series=name) for name in ("ping", "add", "read")]
    [chart] = charts_of(results(result(*rows)))
    [series] = chart.plot.series
    assert (series.name, [place.x for place in series.places]) == ("", ["ping", "add", "read"])


def test_figures_that_differ_by_far_get_a_logarithmic_axis() -> None:
    near, far = (
        charts_of(results(result(row(measured=10.0, x=1), row(measured=top, documented=top, scale=1.0, x=2))))[0].plot
        for top in (250.0, 50000.0)
    )
    assert (near.log_y, far.log_y) == (False, True)


def spanning() -> Plot:
    values = {"sync": 10.0, "asyncio": 20.0, "threads": 9000.0}
    rows = [row(x, stats(value), x=x, scale=1.0, table="003 I/O-bound") for x, value in values.items()]
    [chart] = charts_of(results(result(*rows)))
    return chart.plot


def test_bars_are_never_on_a_logarithmic_axis() -> None:
    plot = spanning()
    assert (plot.kind, plot.log_y) == ("dots", True)
    page = figure(plot)
    assert "<rect" not in page
    assert page.count("<circle") == 6


def test_axes_say_what_they_are_of() -> None:
    page = figure(spanning())
    assert ">time, ms</text>" in page and ">way of working</text>" in page
    [waves] = charts_of(full())
    assert (waves.plot.x_name, waves.plot.y_name) == ("calls", "time, ms")


def test_all_eight_plots_of_document_003_are_on_the_page_of_reproductions() -> None:
    path = reproductions.committed()
    assert path is not None
    shown = [
        (chart.table, chart.metric) for chart in reproductions._shown(read_results(path)) if chart.document == "003"
    ]
    assert sorted(shown) == sorted((table, metric) for table, metrics in PLOTS.items() for metric in metrics)
    assert len(shown) == 8


def test_charts_of_one_table_in_two_units_have_two_names() -> None:
    rows = [row(f"{unit}{x}", unit=unit, x=x) for unit in ("MB", "%") for x in (1, 2)]
    names = {chart.name for chart in charts_of(results(result(*rows)))}
    assert names == {"001-4-time-mb", "001-4-time-percent"}


def test_conditions_are_told_last_and_claims_in_their_order() -> None:
    claims = (check("001-10"), check("001-2"), check("001-1a"), check("001-1"))
    rows = (row(table="001 conditions"), row(table="001 §4"), row(table="002 bars"))
    first, second = by_document(results(result(*rows, checks=claims, documents=("001", "002"))))
    assert list(first.tables) == ["001 §4", "001 conditions"]
    assert [claim.claim for claim in first.checks] == ["001-1", "001-1a", "001-2", "001-10"]
    assert (second.number, list(second.tables)) == ("002", ["002 bars"])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    from mcp_probe.workloads.bench.html import write_html
    from mcp_probe.workloads.bench.plots import write_plots

    folder = tmp_path_factory.mktemp("drawn")
    models = [
        row(f"{model} {part}", stats(value), table="003 CPU-bound", x=model, series=part, scale=1.0)
        for model, value in (("sync", 9.77), ("asyncio", 9.78))
        for part in ("user", "system")
    ]
    sizes = [
        row(f"{x} {part}", float(x), table="now results", documented=None, scale=1.0, x=x, series=part)
        for x in (1, 10)
        for part in ("text", "pieces")
    ]
    found = results(
        *full().results,
        result(*models, name="cpu-models", documents=("003",)),
        result(*sizes, name="result-size", documents=("now",)),
    )
    write_plots(found, folder)
    write_html(found, folder / "page.html")
    return folder


def test_every_chart_is_a_picture_in_both_forms(drawn: Path) -> None:
    names = {path.stem for path in drawn.glob("*.svg")}
    assert names == {"001-4-time", "003-cpu-bound-time", "now-results-time"}
    for name in names:
        ElementTree.parse(drawn / f"{name}.svg")
        assert (drawn / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_figures_give_the_same_picture(drawn: Path) -> None:
    from mcp_probe.workloads.bench.plots import image

    [chart] = charts_of(full())
    assert image(chart.plot, "svg") == image(chart.plot, "svg")


def test_the_page_is_whole_and_loads_nothing(drawn: Path) -> None:
    text = (drawn / "page.html").read_text()
    assert text.count('<figure class="plot">') == 3
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert "src=" not in text
    assert text.count("<script") == 1 and "default-src 'none'" in text
    for told in (
        "001 · MCP Hangar",
        "003 · asyncio-vs-thread",
        "001 conditions",
        "now · Questions of today",
        "asked: round(t(N)/t(4)) = ceil(N/4)",
    ):
        assert told in text
    assert "<code>nap</code> held all threads." in text
    assert text.count("<tr") == text.count("</tr>")
    assert "httpx is not installed: HTTP/2" in text


def test_labels_of_strangers_stay_text(drawn: Path) -> None:
    from mcp_probe.workloads.bench.html import write_html

    path = drawn / "strange.html"
    write_html(results(result(row("<script>alert(1)</script>"))), path)
    assert "<script>alert" not in path.read_text()


def test_whiskers_hold_the_point_that_they_stand_at_and_nothing_below_zero() -> None:
    """A slow round pulls the mean away from the median that is drawn; its interval would not hold the point."""
    skewed = describe([5.0, 5.1, 5.2, 5.3, 90.0], first_apart=False)
    assert skewed.ci_low is not None and skewed.ci_low < 0
    rows = [row(f"{x}", skewed, x=x, table="fan-out of tool nap", documented=None) for x in (1, 2, 4)]
    (chart,) = measured_charts(rows)
    for place in chart.plot.series[0].places:
        assert place.low is not None and place.value is not None and place.high is not None
        assert 0 <= place.low <= place.value <= place.high
