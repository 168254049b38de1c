"""The arguments of ``mcp-probe init``; loads nothing but argparse."""

from __future__ import annotations

import argparse
from pathlib import Path

from mcp_probe.arguments import Declared
from mcp_probe.init.clients import NAMES

_EXAMPLES = """\
The server keeps its arguments and variables. Its report and recording go to ~/.mcp-probe (or --reports FOLDER),
anew at each of its runs. The client must be restarted, or the server in it.

examples:
  mcp-probe init -- python server.py                              for every client that is known
  mcp-probe init --client cursor --name shop -- uvx my-server     for one
  mcp-probe init --client cursor                                  the servers that Cursor has, with the probe
  mcp-probe init --file .vscode/mcp.json --name shop --write      put it into the file; a copy of the old one stays
"""


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="the server's name (default: by its command; with a file: all)")
    parser.add_argument("--client", choices=NAMES, metavar="CLIENT", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--file", metavar="FILE", type=Path, help="read the servers of this configuration")
    parser.add_argument("--write", action="store_true", help="change that file instead of printing; keeps a copy of it")
    parser.add_argument(
        "--reports", metavar="FOLDER", type=Path, help="where reports and recordings go (default: ~/.mcp-probe)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


INIT = Declared(
    help="print the configuration of an MCP client that starts a server under the probe",
    description="Prints what to put into a client's configuration, or puts the probe into one that is there.",
    options=_add_init,
    usage="mcp-probe init [options] (-- COMMAND [ARGUMENT ...] | --file FILE | --client CLIENT)",
    examples=_EXAMPLES,
    has_looks=False,
)
