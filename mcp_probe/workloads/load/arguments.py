"""The arguments of ``mcp-probe load``; loads nothing but argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

from mcp_probe.arguments import Declared

_EXAMPLES = """\
Requests are sent when they are due, whether or not earlier ones have been answered (an open loop), and latency is
counted from when they were due. Beside it the same schedule is run by a client that waits for its answers.

examples:
  mcp-probe load --server 'python server.py' --tool price --arguments '{"item": "tea"}' --rate 50
  mcp-probe load --url http://127.0.0.1:8000/mcp --mix shop.toml --poisson --seconds 60
  mcp-probe load --server 'python server.py' --mix shop.toml --profile      and what the probe in the server saw
  mcp-probe load --url http://10.0.0.5/mcp --mix shop.toml --export locust --to locustfile.py

a mix file:
  rate = 50                # requests a second; also arrivals = "poisson", seconds or count, warm_up, drain, seed
  [[call]]
  tool = "price"           # or prompt, resource, method
  weight = 3
  arguments = [{ item = "tea" }, { item = "cake" }]      # one after the other
  [[call]]
  tool = "stock"
"""


def _add_load(parser: argparse.ArgumentParser) -> None:
    add_target(parser.add_argument_group("the server"))
    what = parser.add_argument_group("what is sent")
    what.add_argument("--mix", metavar="FILE", type=Path, help="calls and their proportions, from a TOML file")
    what.add_argument("--tool", metavar="NAME", help="one tool, instead of a mix")
    what.add_argument("--arguments", metavar="JSON", help="its arguments, an object")
    what.add_argument("--rate", metavar="N", type=float, help="requests a second (default: 20)")
    what.add_argument("--poisson", action="store_true", help="at random instants instead of equal distances")
    length = what.add_mutually_exclusive_group()
    length.add_argument("--seconds", metavar="N", type=float, help="how long requests are due (default: 10)")
    length.add_argument("--count", metavar="N", type=int, help="how many requests, instead")
    what.add_argument("--warm-up", metavar="N", type=float, help="seconds before that are not counted (default: 1)")
    what.add_argument("--drain", metavar="N", type=float, help="seconds to wait for the last answers (default: 5)")
    what.add_argument("--in-flight", metavar="N", type=int, help="of the closed loop beside it (default: 1; 0: none)")
    what.add_argument("--seed", metavar="N", type=int, help="of instants and mix; equal seeds: equal loads")
    what.add_argument("--connections", metavar="N", type=int, default=0, help="to an HTTP server at most")
    what.add_argument(
        "--sessions", metavar="N", type=int, default=1, help="clients that take turns (default: 1); stdio: N servers"
    )
    what.add_argument("--allow-failures", action="store_true", help="go on where a call fails when it is first made")
    what.add_argument("--profile", action="store_true", help="start the server under the probe, and show what it saw")
    out = parser.add_argument_group("results")
    out.add_argument("--json", metavar="FILE", type=Path, help="write the result to FILE; `-` = print only that")
    out.add_argument("--html", metavar="FILE", type=Path, help="write one page with charts to FILE, too")
    out.add_argument("--export", choices=("locust", "k6"), help="write the same load as a script instead of running it")
    out.add_argument("--to", metavar="FILE", type=Path, help="where the script goes (default: stdout)")


def add_target(group: argparse._ArgumentGroup) -> None:  # has no public name
    """Which server; the same for ``mcp-probe bench`` on a user's own."""
    group.add_argument("--server", metavar="'CMD ARGS'", help="a stdio server's command line, in quotes")
    group.add_argument("--url", metavar="URL", help="a streamable HTTP server's endpoint")
    group.add_argument(
        "--header", metavar="'NAME: VALUE'", action="append", default=[], help="for --url; may be repeated"
    )
    group.add_argument(
        "--protocol",
        choices=("auto", "modern", "legacy"),
        default="auto",
        help="2026-07-28, or the handshake before it (default: the newest that the server speaks)",
    )
    group.add_argument(
        "--start-timeout",
        metavar="SECONDS",
        type=float,
        help="how long the server may take to start (default: 60); a --url is tried until it answers",
    )
    group.add_argument("--stderr", metavar="FILE", type=Path, help="keep what the server writes to stderr")


LOAD = Declared(
    help="send requests to a server on a fixed schedule",
    description="Loads an MCP server, over stdio or streamable HTTP, and says how long requests wait.",
    options=_add_load,
    usage="mcp-probe load (--server 'CMD ARGS' | --url URL) (--tool NAME | --mix FILE) [options]",
    examples=_EXAMPLES,
)
