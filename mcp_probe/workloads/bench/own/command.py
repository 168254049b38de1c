"""``mcp-probe bench --server`` and ``--url``: options into a workload that compares a user's own server."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.own.comparison import OwnServer, compare
from mcp_probe.workloads.bench.registry import Find
from mcp_probe.workloads.bench.shapes import Outcome, Workload
from mcp_probe.workloads.load.command import target_of
from mcp_probe.workloads.load.mix import tool_call

NAME = "own-server"


def own_workload(options: argparse.Namespace) -> tuple[tuple[Workload, ...], Find]:
    """The one workload, and what runs it.

    Raises: OptionError for arguments without a tool, bundled workloads beside it, or a malformed target.
    """
    if options.names or options.document or options.all:
        raise OptionError("--server and --url are for a server of your own; run the bundled workloads by themselves.")
    if options.arguments and not options.tool:
        raise OptionError("--arguments belongs to --tool; name the tool as well.")
    own = _own(options)

    async def run(bench: Bench) -> Outcome:
        return await compare(own, bench)

    workload = Workload(
        name=NAME,
        documents=("000", "001", "002", "004"),
        about=f"the documents' comparisons on {own.target.name}",
        place="mcp_probe.workloads.bench.own.comparison:compare",
        limit_quick_s=300.0,
        limit_full_s=3600.0,
    )
    return (workload,), lambda _: run


def _own(options: argparse.Namespace) -> OwnServer:
    given = argparse.Namespace(**vars(options))
    over_http = None
    if options.server and options.url:
        given.url = None
        over_http = target_of(argparse.Namespace(**{**vars(options), "server": None}))
    target = target_of(given)
    arguments = tool_call(options.tool or "", options.arguments).variants[0]["arguments"]
    return OwnServer(
        target=replace(target, headers={}) if target.command else target,
        over_http=over_http,
        tool=options.tool,
        arguments=arguments,
        probe=not options.no_probe,
    )
