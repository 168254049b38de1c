"""Writes the golden files anew: ``python -m tests.report.regenerate`` from the project's folder; then read the diff."""

from __future__ import annotations

from pathlib import Path

from mcp_probe.report.content import build
from mcp_probe.report.layout import lay_out
from mcp_probe.report.plain import paint
from mcp_probe.report.theme import glyphs
from tests.report.summaries import SUMMARIES

FOLDER = Path(__file__).parent / "golden"

# File name -> (summary, width, ASCII only). Colour is left to rich and to the eye.
GOLDEN = {
    **{f"{name}-100.txt": (name, 100, True) for name in SUMMARIES},
    "blocking-60.txt": ("blocking", 60, True),
    "in_memory-80.txt": ("in_memory", 80, True),
    "blocking-100-unicode.txt": ("blocking", 100, False),
}


def rendered(file: str) -> str:
    """The report as ``file`` should hold it, whatever folder, terminal or environment this runs in."""
    name, width, ascii_only = GOLDEN[file]
    blocks = build(SUMMARIES[name](), cwd="/srv/shop")
    return paint(lay_out(blocks, width, glyphs(color=False, ascii_only=ascii_only)), color=False)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stale in set(FOLDER.iterdir()) - {FOLDER / file for file in GOLDEN}:
        stale.unlink()
    for file in GOLDEN:
        (FOLDER / file).write_text(rendered(file), encoding="utf-8")


if __name__ == "__main__":
    main()
