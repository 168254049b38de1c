"""The report's rows of one test: what failed, without what only a whole report needs."""

from __future__ import annotations

import sys

from mcp_probe.model import Summary
from mcp_probe.report.blocks import Block
from mcp_probe.report.console import draw
from mcp_probe.report.content import sections
from mcp_probe.report.places import working_directory

SECTIONS = ("header", "verdict", "operations", "blocked-by", "slow-steps", "awaits", "leaks", "memory", "findings")
WIDTH = 100


def rows_of(summary: Summary) -> str:
    """As text without colours, at most 100 columns wide."""
    found = sections(summary, cwd=working_directory())
    blocks: list[Block] = [block for name in SECTIONS for block in found[name]]
    return draw(blocks, sys.stdout, width=WIDTH, color=False)
