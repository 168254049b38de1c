"""The pictures in the docs, of recordings that are the same everywhere: `make pictures` draws them."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from mcp_probe.aggregate.fold import Fold
from mcp_probe.compare.html import html as comparison_html
from mcp_probe.compare.judge import compared
from mcp_probe.compare.reading import reading_of
from mcp_probe.compare.samples import recorded
from mcp_probe.report.page.compose import render
from mcp_probe.report.page.window import Window
from tests.compare.recordings import calls
from tests.report.browser import Browser, browsing, find_browser
from tests.report.recordings import shop

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 200_000
COLOURS = 255
SOON = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
OPEN = "document.querySelector('.heat button[data-victim=lookup][data-blocker=resize]').click()"


@dataclass(frozen=True)
class Picture:
    """``first`` and ``last`` name the elements between which the page is cut out, both included."""

    page: str
    first: str
    last: str
    width: int = 1100
    theme: str = "light"
    before: str = "0"


PICTURES = {
    "page": Picture("page", ".verdict", ".window"),
    "page-waits": Picture("page", ".waits h2", ".waits .heat", theme="dark"),
    "page-request": Picture("page", ".requests h2", "details[open]", before=OPEN),
    "page-compare": Picture("compare", "section:nth-of-type(2)", "section:nth-of-type(2)"),
}


def pages(folder: Path) -> dict[str, Path]:
    """What the pictures are of."""
    fold, window = Fold(), Window()
    for frame in shop(1500):
        fold.add(frame)
        window.add(frame)
    sides = [reading_of(recorded(calls(awaiting_ms=ms, seed=seed)), "a") for ms, seed in ((20.0, 1), (24.0, 2))]
    found = {
        "page": render((fold.summary(), window), cwd="/srv/shop"),
        "compare": comparison_html(compared(sides[:1], sides[1:])),
    }
    for name, text in found.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in found}


def taken(browser: Browser, picture: Picture, path: Path) -> bytes:
    """PNG of few colours."""
    browser.ask("Emulation.setScrollbarsHidden", hidden=True)  # a picture has none, so lines would break elsewhere
    browser.show(path, width=picture.width, theme=picture.theme)
    browser.evaluate(f"{picture.before}; {SOON}")
    # The header stays at the top of the window, and would lie over what is cut out.
    browser.evaluate("document.querySelector('body > header').style.position = 'static'; scrollTo(0, 0)")
    top = browser.evaluate(f"document.querySelector('{picture.first}').getBoundingClientRect().top + scrollY")
    foot = browser.evaluate(f"document.querySelector('{picture.last}').getBoundingClientRect().bottom + scrollY")
    image = Image.open(io.BytesIO(browser.picture())).convert("RGB")
    cut = image.crop((0, max(0, int(top) - 14), image.width, int(foot) + 14))
    few = cut.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    png = io.BytesIO()
    few.save(png, "PNG", optimize=True)
    return png.getvalue()


def all_pictures(browser: Browser, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Each by its name, without its ending."""
    found = pages(folder)
    for name, picture in PICTURES.items():
        yield name, taken(browser, picture, found[picture.page])


def main() -> int:
    """Writes them all."""
    chromium = find_browser()
    if chromium is None:
        print("There is no Chromium here: the pictures stay as they are.", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browsing(chromium, Path(scratch)) as browser:
        for name, png in all_pictures(browser, Path(scratch)):
            (FOLDER / f"{name}.png").write_bytes(png)
            print(f"docs/pictures/{name}.png: {len(png)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
