"""The arguments of ``mcp-probe top``; loads nothing but argparse."""

from __future__ import annotations

import argparse

from mcp_probe.arguments import Declared

_EXAMPLES = """\
A server is live that runs with `mcp-probe run --live -- ...`, with `mcp_probe.attach(server, live=True)`, or with
MCP_PROBE_LIVE=1 in its environment. Only the user it runs as can watch it.

examples:
  mcp-probe top                       all live servers, once a second
  mcp-probe top --once                one look, as text
  mcp-probe top --json | jq '.servers[].requests[] | select(.state == "awaiting")'
  mcp-probe top --dump 4711           write the last seconds of process 4711 (it runs with --flight DIR)
"""


def _add_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", metavar="PID", nargs="?", type=_pid, help="only the server with this process id")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print one look at each server, and end")
    how.add_argument("--json", action="store_true", help="the same as JSON (format mcp_probe.top/1)")
    how.add_argument("--dump", metavar="PID", type=_pid, help="have the flight recording of this process written")


def _pid(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected the id of a process, such as 4711.")
    return int(text)


TOP = Declared(
    help="watch running servers",
    description="Shows what live servers do right now: requests in flight, what each waits for and who holds it.",
    options=_add_top,
    usage="mcp-probe top [PID] [--once | --json | --dump PID] [options]",
    examples=_EXAMPLES,
)
