"""Writes the golden files anew: ``python -m tests.report.regenerate`` from the project's folder; then read the diff."""

from __future__ import annotations

from pathlib import Path

from mcp_probe.report.content import build
from mcp_probe.report.layout import lay_out
from mcp_probe.report.paint import Depth, paint
from mcp_probe.report.theme import glyphs
from tests.report.summaries import SUMMARIES

FOLDER = Path(__file__).parent / "golden"

# File name -> (summary, width, ASCII only, colours).
GOLDEN: dict[str, tuple[str, int, bool, Depth]] = {
    **{f"{name}-100.txt": (name, 100, True, "none") for name in SUMMARIES},
    "blocking-60.txt": ("blocking", 60, True, "none"),
    "in_memory-80.txt": ("in_memory", 80, True, "none"),
    "blocking-100-unicode.txt": ("blocking", 100, False, "none"),
    "blocking-80-16-colours.txt": ("blocking", 80, False, "16"),
}


def rendered(file: str) -> str:
    """The report as ``file`` should hold it, whatever folder, terminal or environment this runs in."""
    name, width, ascii_only, depth = GOLDEN[file]
    blocks = build(SUMMARIES[name](), cwd="/srv/shop")
    return paint(lay_out(blocks, width, glyphs(color=depth != "none", ascii_only=ascii_only)), depth)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stale in set(FOLDER.iterdir()) - {FOLDER / file for file in GOLDEN}:
        stale.unlink()
    for file in GOLDEN:
        (FOLDER / file).write_text(rendered(file), encoding="utf-8")


if __name__ == "__main__":
    main()
