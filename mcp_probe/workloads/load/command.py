"""What ``mcp-probe load`` does; the command line only chooses the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from mcp_probe.errors import OptionError
from mcp_probe.record import private_file
from mcp_probe.workloads.load.mix import LONGEST_S, Mix, MixFile, changed, read_mix, tool_call
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.peer import Target, command_of
from mcp_probe.workloads.load.running import LoadOptions, run_load
from mcp_probe.workloads.load.verdict import json_of
from mcp_probe.workloads.status_line import StatusLine


def load(options: argparse.Namespace) -> bool:
    """Runs or exports what was asked for: whether the server answered all of it.

    Raises:
        OptionError: contradictory or missing options, a malformed mix, a file that cannot be written.
        LaunchError: the server does not start or does not answer.
        MissingExtraError: a package that this needs is not there.
        KeyboardInterrupt: a second Ctrl-C.
    """
    given = _given(options)
    if options.export is not None:
        _export(options, given)
        return True
    target = target_of(options, given.server, given.url, given.headers)
    to_stdout = options.json is not None and str(options.json) == "-"
    for path in (None if to_stdout else options.json, options.html):
        if path is not None:
            private_file.check(path)
    settings = LoadOptions(options.allow_failures, options.profile, options.connections, options.sessions)
    with StatusLine(sys.stderr, "load") as line:
        result = run_load(target, given.mix, settings, line.show)
    text = json.dumps(json_of(result), indent=1) + "\n"
    if to_stdout:
        sys.stdout.write(text)
    else:
        if options.json is not None:
            private_file.write(options.json, text)
        sys.stdout.write(page(result, width=options.width, color=False if options.no_color else None))
    sys.stdout.flush()
    if options.html is not None:
        from mcp_probe.workloads.load.html import html

        private_file.write(options.html, html(result))
    return result.open.fates["ok"] == result.open.due


def target_of(
    options: argparse.Namespace, server: str = "", url: str = "", headers: Mapping[str, str] | None = None
) -> Target:
    """The server that was named; what stands on the command line wins over a mix file's.

    Raises: OptionError where none was named.
    """
    if options.server or options.url:
        server, url = options.server or "", options.url or ""
    if not server and not url:
        raise OptionError("Name a server: --server 'python server.py' for stdio, or --url http://…/mcp.")
    return Target(
        command=command_of(server) if server else (),
        url=url,
        era=options.protocol,
        headers={**(headers or {}), **_headers(options.header)},
        stderr=options.stderr,
        start_s=_start_s(options.start_timeout),
    )


def _given(options: argparse.Namespace) -> MixFile:
    if (options.mix is None) == (options.tool is None):
        raise OptionError(
            "Say what to send: --tool NAME (with --arguments JSON), or --mix FILE; one of the two. "
            "No tool is called that was not named."
        )
    if options.arguments and options.tool is None:
        raise OptionError("--arguments belongs to --tool; in a mix each call has its own.")
    found = (
        read_mix(options.mix)
        if options.mix is not None
        else MixFile(Mix((tool_call(options.tool, options.arguments),)))
    )
    mix = changed(
        found.mix,
        rate=options.rate,
        arrivals="poisson" if options.poisson else None,
        seconds=options.seconds,
        count=options.count,
        warm_up=options.warm_up,
        drain=options.drain,
        in_flight=options.in_flight,
        seed=options.seed,
    )
    return MixFile(mix, found.server, found.url, found.headers)


def _start_s(given: float | None) -> float | None:
    if given is not None and not 0 < given <= LONGEST_S:
        raise OptionError(f"--start-timeout is {given:g}; expected more than 0 and at most {LONGEST_S:g} seconds.")
    return given


def _headers(given: list[str]) -> dict[str, str]:
    headers = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or any(sign in text for sign in "\r\n"):
            raise OptionError(f"--header {text!r}; expected 'NAME: VALUE'.")
        headers[name.strip()] = value.strip()
    return headers


def _export(options: argparse.Namespace, given: MixFile) -> None:
    from mcp_probe.workloads.load.export import script_of

    if options.server:
        raise OptionError("A script sends to a URL: a stdio server has one client, its parent. Name it with --url.")
    text = script_of(options.export, given.mix, target_of(options, "", given.url, given.headers))
    if options.to is None:
        sys.stdout.write(text)
    else:
        with private_file.opened(options.to) as stream:
            stream.write(text)
