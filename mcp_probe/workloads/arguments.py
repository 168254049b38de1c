"""The command line of ``mcp-probe demo``."""

from __future__ import annotations

import argparse

from mcp_probe.arguments import Declared


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument("--seconds", metavar="N", type=float, help="about how long the load lasts (default: 5)")


DEMO = Declared(
    help="profile a bundled server under a bundled load",
    description="Profiles a bundled server with known faults under a mixed load, and prints the report.",
    options=_add_demo,
)
