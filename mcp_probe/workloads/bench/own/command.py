"""``mcp-probe bench --server`` and ``--url``: options into a workload that compares a user's own server."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import Any

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.own.comparison import compare
from mcp_probe.workloads.bench.own.operations import OwnServer
from mcp_probe.workloads.bench.registry import Find
from mcp_probe.workloads.bench.shapes import OWN, Outcome, Workload
from mcp_probe.workloads.load.command import target_of
from mcp_probe.workloads.load.mix import json_object, tool_call

PATIENCE_QUICK_S = 20.0
"""A third of what a sweep takes: on a machine that is busy now and then, each level has its quiet repeats."""

_CALL = """a tool and an object, such as --call 'search={"query": "tea"}'"""


def own_workload(options: argparse.Namespace) -> tuple[tuple[Workload, ...], Find]:
    """The one workload, and what runs it.

    Raises: OptionError for arguments without a tool, bundled workloads beside it, or a malformed target.
    """
    if options.names or options.document or options.all:
        raise OptionError("--server and --url are for a server of your own; run the bundled workloads by themselves.")
    if options.arguments and not options.tool:
        raise OptionError("--arguments belongs to --tool; name the tool as well.")
    if options.tool and (options.call or options.yes):
        raise OptionError("--tool calls one tool and no other; leave out --call and --yes, or name it with --call.")
    own = _own(options)

    async def run(bench: Bench) -> Outcome:
        return await compare(own, bench)

    workload = Workload(
        name=OWN,
        documents=("000", "001", "002", "004"),
        about=f"calls to {own.target.name}: how long they take, how many at once, and what limits the server",
        place="mcp_probe.workloads.bench.own.comparison:compare",
        limit_quick_s=600.0,
        limit_full_s=7200.0,
        patience_quick_s=PATIENCE_QUICK_S,
        patience_full_s=10 * PATIENCE_QUICK_S,
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
        calls=dict(map(_call, options.call)),
        yes=options.yes,
        probe=not options.no_probe,
        again=_again(options),
    )


def _call(text: str) -> tuple[str, dict[str, Any]]:
    """``NAME={"some": "arguments"}``, or just ``NAME``."""
    name, equals, given = text.partition("=")
    if not name.strip():
        raise OptionError(f"--call {text}: expected {_CALL}.")
    return name.strip(), json_object(f"--call {text}", given if equals else "{}", _CALL)


def _again(options: argparse.Namespace) -> str:
    """The command line that reaches this server again, without headers: they may hold secrets."""
    parts = ["mcp-probe", "bench", *(["--quick"] if options.quick else [])]
    for name in ("server", "url"):
        parts += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    headers = " --header 'NAME: …'" if options.header else ""
    return shlex.join(parts) + headers
