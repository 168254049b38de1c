"""The page in a headless Chromium; `make test-browser`. Skipped where there is no browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.report.page.compose import render
from mcp_probe.report.page.window import Window
from tests.report.browser import Browser, browsing, find_browser
from tests.report.recordings import shop

CHROMIUM = find_browser()
AXE = Path(__file__).parents[2] / ".tools/node_modules/axe-core/axe.min.js"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fold, window = Fold(), Window()
    for frame in shop(1500):
        fold.add(frame)
        window.add(frame)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render(fold.summary(), window, cwd="/srv/shop"), "utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(str(CHROMIUM), tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_it_is_drawn_without_a_complaint_and_asks_for_nothing(
    browser: Browser, page: Path, width: int, theme: str
) -> None:
    browser.show(page, width=width, theme=theme)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.evaluate("document.querySelectorAll('#timeline path').length") > 5
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_cell_of_the_map_opens_the_requests_in_question(browser: Browser, page: Path) -> None:
    browser.show(page)
    browser.evaluate("document.querySelector('.heat button[data-victim=lookup][data-blocker=resize]').click()")
    opened = browser.evaluate(
        "new Promise(done => setTimeout(() => done(document.querySelector('details[open]').innerText), 50))"
    )
    assert opened.startswith("lookup")
    assert "for resize" in opened


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `make test-browser` gets it")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser: Browser, page: Path, theme: str) -> None:
    browser.show(page, theme=theme)
    browser.evaluate("document.querySelector('details.request').open = true")
    browser.evaluate(AXE.read_text("utf-8") + "; 0")
    told = json.loads(browser.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
    assert [fault["id"] for fault in told if fault["impact"] in ("serious", "critical")] == []
