"""The page in a headless Chromium; `make test-browser`. Skipped where there is no browser."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.compare.html import html as comparison_html
from mcp_probe.compare.judge import compared
from mcp_probe.compare.reading import reading_of
from mcp_probe.compare.samples import recorded
from mcp_probe.model import Summary
from mcp_probe.report.page.compose import render
from mcp_probe.report.page.window import Window
from mcp_probe.workloads.bench.html import write_html
from mcp_probe.workloads.load.html import html as load_html
from tests.compare.recordings import calls
from tests.report.browser import Browser, browsing, find_browser
from tests.report.recordings import shop
from tests.workloads.bench.made import full
from tests.workloads.load.test_result import log_of, result_of

CHROMIUM = find_browser()
SOON = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
AXE = Path(__file__).parents[2] / ".tools/node_modules/axe-core/axe.min.js"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


def folded(count: int, seed: int = 1) -> tuple[Summary, Window]:
    fold, window = Fold(), Window()
    for frame in shop(count, seed):
        fold.add(frame)
        window.add(frame)
    return fold.summary(), window


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render(folded(1500), cwd="/srv/shop"), "utf-8")
    return path


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several") / "page.html"
    path.write_text(render(folded(400), folded(300, 2), cwd="/srv/shop"), "utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(str(CHROMIUM), tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_it_is_drawn_without_a_complaint_and_asks_for_nothing(
    browser: Browser, page: Path, width: int, theme: str
) -> None:
    browser.show(page, width=width, theme=theme)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.evaluate("document.querySelectorAll('.timeline path').length") > 5
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_drawn_has_the_colours_of_its_style(browser: Browser, page: Path) -> None:
    """A rule for another chart would win, and leave the lanes black."""
    browser.show(page)
    fill = "getComputedStyle(document.querySelector('{}')).fill"
    assert browser.evaluate(fill.format(".timeline .lane")) == "rgb(245, 247, 249)"
    assert browser.evaluate(fill.format(".timeline path")) == "rgb(61, 132, 224)"
    assert browser.evaluate(fill.format(".timeline path.line")) == "none"


def test_a_cell_of_the_map_opens_the_requests_in_question(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.evaluate("document.querySelector('.heat button[data-victim=lookup][data-blocker=resize]').click()")
    browser.evaluate(SOON)
    opened = browser.evaluate("document.querySelector('details[open]').innerText")
    assert opened.startswith("lookup")
    assert "for resize" in opened


def test_a_name_in_a_waterfall_leads_to_the_blockers_own(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.evaluate("document.querySelector('.heat button[data-victim=lookup][data-blocker=resize]').click()")
    browser.evaluate(SOON)
    target = browser.evaluate("document.querySelector('details[open] .why a').getAttribute('href')")
    browser.evaluate("document.querySelector('details[open] .why a').click()")
    assert browser.evaluate("location.hash") == target
    assert browser.evaluate(f"document.querySelector('{target}').open")
    assert browser.evaluate(f"document.querySelector('{target} summary').innerText").startswith("resize")


# --- keys, touch, brush ---------------------------------------------------------------------------


def test_arrow_keys_in_a_table_tell_how_exact_its_figures_are(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.evaluate("document.querySelector('.operations .scroll').focus()")
    browser.press("ArrowRight")
    first = browser.evaluate("document.querySelector('.tip').innerText")
    browser.press("ArrowRight")
    second = browser.evaluate("document.querySelector('.tip').innerText")
    assert "exact" in first and first != second
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('.tip').hidden")


def test_a_tap_on_a_figure_tells_how_exact_it_is(browser: Browser, page: Path) -> None:
    browser.show(page, width=360)
    browser.evaluate("document.querySelector('.operations td[title]').scrollIntoView({block: 'center'})")
    x, y = browser.middle_of(".operations td[title]")
    browser.tap(x, y)
    assert "exact" in browser.evaluate("document.querySelector('.tip').innerText")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_key_and_button_of_the_window_zooms_moves_and_goes_back(browser: Browser, page: Path) -> None:
    browser.show(page)
    shown = "document.querySelector('.window output').innerText"
    whole = browser.evaluate(shown)
    browser.evaluate("document.querySelector('.plot').focus()")
    seen = [whole]
    for key in ("+", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        browser.press(key)
        seen.append(browser.evaluate(shown))
    assert all(before != after for before, after in pairwise(seen))
    browser.press("Escape")
    assert browser.evaluate(shown) == whole


@pytest.mark.parametrize("where", [".plot", ".overviewstrip svg"])
def test_a_drag_over_the_window_shows_what_it_spans_and_its_requests(browser: Browser, page: Path, where: str) -> None:
    browser.show(page)
    count = "document.querySelector('.requests output').innerText"
    before = browser.evaluate(count)
    browser.evaluate(f"document.querySelector('{where}').scrollIntoView({{block: 'center'}})")
    x, y = browser.middle_of(where)
    browser.drag((x - 100, y), (x + 100, y))
    assert browser.evaluate("document.querySelectorAll('.overviewstrip .shade')[0].getAttribute('width')") != "0"
    assert browser.evaluate(count) != before
    assert "those in the time shown above" in browser.evaluate(count)


# --- several processes ------------------------------------------------------------------------------


def test_of_several_processes_one_is_shown_and_another_is_chosen(browser: Browser, several: Path) -> None:
    browser.show(several)
    shown = "[...document.querySelectorAll('article')].map(one => !one.hidden)"
    assert browser.evaluate(shown) == [True, False]
    browser.evaluate("document.querySelector('.overview a[href=\"#2-verdict\"]').click()")
    browser.evaluate(SOON)
    assert browser.evaluate(shown) == [False, True]
    assert browser.evaluate("document.querySelectorAll('article:not([hidden]) .timeline path').length") > 5
    assert browser.evaluate("document.querySelector('header nav a').getAttribute('href')") == "#2-verdict"
    picker = "document.querySelector('header select')"
    browser.evaluate(f"{picker}.value = '0'; {picker}.dispatchEvent(new Event('change'))")
    assert browser.evaluate(shown) == [True, False]
    assert browser.complaints() == []


# --- pictures in the docs -----------------------------------------------------------------------------


def test_the_docs_show_what_is_drawn_today(browser: Browser, tmp_path: Path) -> None:
    """Fonts differ between machines, so sizes may by a tenth; what is coloured may by a twentieth of the picture."""
    pictures = pytest.importorskip("tests.report.pictures")
    for name, png in pictures.all_pictures(browser, tmp_path):
        now, kept = opened(png), opened((pictures.FOLDER / f"{name}.png").read_bytes())
        assert now.width == kept.width, name
        assert abs(now.height - kept.height) <= 0.1 * kept.height, f"{name}: run `make pictures`"
        ink = [sum(colours(image).values()) for image in (now, kept)]
        assert min(ink) > 0.001, name
        changed = sum((colours(now) - colours(kept)).values()) + sum((colours(kept) - colours(now)).values())
        assert changed < 0.05, f"{name}: run `make pictures`"


def opened(png: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return image.open(io.BytesIO(png)).convert("RGB")


def colours(image: Any) -> Counter[tuple[int, ...]]:
    """How much of the picture each coarse colour covers, without grey ones: text and paper."""
    found: Counter[tuple[int, ...]] = Counter()
    for count, colour in image.getcolors(1 << 24):
        if max(colour) - min(colour) > 48:
            found[tuple(part // 64 for part in colour)] += count / (image.width * image.height)
    return found


# --- 100 000 requests ---------------------------------------------------------------------------------


def test_a_hundred_thousand_requests_are_a_small_page_of_little_memory(browser: Browser, tmp_path: Path) -> None:
    """How soon it is drawn depends on the machine, so it is told and not judged."""
    path = tmp_path / "page.html"
    path.write_text(render(folded(100_000), cwd="/srv/shop"), "utf-8")
    assert path.stat().st_size < 2_000_000
    browser.show(path)
    assert browser.evaluate("JSON.parse(document.querySelector('script.data').textContent).requests.length") > 100
    assert browser.complaints() == []
    browser.ask("HeapProfiler.collectGarbage")
    heap = browser.ask("Runtime.getHeapUsage")["usedSize"]
    nodes = browser.evaluate("document.querySelectorAll('*').length")
    painted = browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    print(f"{path.stat().st_size} bytes, heap {heap} bytes, {nodes} elements, first paint after {painted} ms")
    assert heap < 30_000_000
    assert nodes < 5_000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "page.html"
    write_html(full(), path)
    return path


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "page.html"
    log = log_of([(due % 2, due, due + 5 + due // 50, "ok") for due in range(0, 1000, 10)])
    path.write_text(load_html(result_of(log, log)), "utf-8")
    return path


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    sides = [reading_of(recorded(calls(awaiting_ms=ms, seed=seed)), "a") for ms, seed in ((20.0, 1), (30.0, 2))]
    path.write_text(comparison_html(compared(sides[:1], sides[1:])), "utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("which", ["bench", "load", "comparison"])
def test_other_pages_are_drawn_alike_and_ask_for_nothing(
    browser: Browser, width: int, which: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(which)
    browser.show(path, width=width)
    assert browser.complaints() == []
    assert browser.requests() == [path.resolve().as_uri()]
    assert browser.evaluate("document.querySelectorAll('figure.plot svg').length") > 0
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `make test-browser` gets it")
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
@pytest.mark.parametrize("which", ["page", "several", "bench", "load", "comparison"])
def test_axe_finds_no_serious_fault(
    browser: Browser, theme: str, width: int, which: str, request: pytest.FixtureRequest
) -> None:
    browser.show(request.getfixturevalue(which), theme=theme, width=width)
    browser.evaluate("for (const one of [...document.querySelectorAll('details')].slice(0, 1)) one.open = true")
    browser.evaluate(SOON)
    browser.evaluate(AXE.read_text("utf-8") + "; 0")
    told = json.loads(browser.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
    assert [fault["id"] for fault in told if fault["impact"] in ("serious", "critical")] == []
