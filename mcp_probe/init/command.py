"""What ``mcp-probe init`` prints, and what it writes."""

from __future__ import annotations

import argparse
import os
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcp_probe.errors import OptionError
from mcp_probe.init.clients import CLIENTS, Client, client_of, json_string, json_text, written
from mcp_probe.init.configuration import Configuration, Server, changed, read, write
from mcp_probe.init.entry import entry_of, name_of, probed
from mcp_probe.record.private_file import check


class Remark(str):
    """A line that is said beside the configuration, and is no part of it."""


def init(options: argparse.Namespace) -> Iterator[str]:
    """The lines of the configuration, and :class:`Remark`, each without its end.

    Raises:
        LaunchError: the command cannot be found, or cannot be profiled.
        OptionError: the options do not fit together, or the file cannot be changed.
        RecordingError: the file cannot be read.
    """
    if options.command and (options.file or options.write):
        raise OptionError("--file and --write are for servers that a file has already. Leave the command out.")
    reports = _reports_folder(options.reports)
    if options.command:
        return _for_command(options, reports)
    if options.file is None and options.client is None:
        raise OptionError(
            "Expected the server's command after `--` (mcp-probe init -- python server.py), "
            "or a configuration to read: --file FILE, or --client NAME."
        )
    return _for_file(options, reports)


def _reports_folder(given: Path | None) -> Path:
    return Path(os.path.abspath(given)) if given is not None else Path.home() / ".mcp-probe"


def _make(reports: Path) -> None:
    """A client would start the server with nobody there to read that a folder is missing."""
    try:
        reports.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise OptionError(f"Cannot make {reports}: {exc.strerror}. Name another folder: --reports FOLDER.") from exc
    trial = reports / ".written"
    check(trial)
    trial.unlink(missing_ok=True)


def _for_command(options: argparse.Namespace, reports: Path) -> Iterator[str]:
    name = options.name or name_of(options.command)
    entry = entry_of(name, options.command)
    _make(reports)
    under = probed(entry, reports)
    clients = CLIENTS if options.client is None else (client_of(options.client),)
    shown: dict[str, list[Client]] = {}
    for client in clients:
        shown.setdefault(written(under, client), []).append(client)
    for text, same in shown.items():
        yield from _where(same)
        yield ""
        yield from text.rstrip("\n").split("\n")
        yield ""
    yield from _after((under.name,), under.args)


def _where(clients: Sequence[Client]) -> Iterator[str]:
    width = max(len(client.title) for client in clients)
    for client in clients:
        files = [_short(file) for file in client.files()]
        places = " or ".join([*files, *([client.hint] if client.hint else [])])
        yield Remark(f"# {client.title:<{width}}  {places}")


def _short(file: Path) -> str:
    for folder, name in ((Path.cwd(), ""), (Path.home(), "~/")):
        if file.is_relative_to(folder):
            return f"{name}{file.relative_to(folder)}"
    return str(file)


def _after(names: Sequence[str], args: Sequence[str]) -> Iterator[str]:
    """What to do next, for the first of the servers."""
    at = args.index("--output")
    yield Remark("# Restart the client, use the server, then stop the server or quit the client. Then read")
    yield Remark(f"#   {args[at + 1]}")
    yield Remark(f"#   mcp-probe report --html page.html {shlex.quote(args[at + 3])}")
    if len(names) > 1:
        yield Remark(f"# and the same for {', '.join(names[1:])}.")


def _for_file(options: argparse.Namespace, reports: Path) -> Iterator[str]:
    configuration = read(options.file or _existing_file(client_of(options.client)))
    chosen = [server for server in configuration.servers if options.name in (None, server.name)]
    if not chosen:
        known = ", ".join(dict.fromkeys(server.name for server in configuration.servers))
        raise OptionError(f"{configuration.file} has no server {options.name!r}. It has {known}.")
    entries = {server.path: probed(server.entry, reports) for server in chosen if server.entry is not None}
    left = [server for server in chosen if server.entry is None]
    if not entries and options.name is not None:
        raise OptionError(f"{options.name} cannot get the probe: {left[0].reason}.")
    text = changed(configuration, entries)
    yield from _told(chosen, configuration)
    if not entries:
        yield Remark("# Nothing to change.")
        return
    _make(reports)
    yield ""
    names = [path[-1] for path in entries]
    first = next(iter(entries.values()))
    if options.write:
        kept = write(configuration, text)
        yield Remark(f"# Written. The file as it was is {kept}")
    else:
        for path, entry in entries.items():
            yield from _entry_lines(path, entry.name, configuration, text)
        yield Remark("# Nothing was written. --write puts the probe into the file, and keeps a copy of the old one.")
    yield from _after(names, first.args)


def _existing_file(client: Client) -> Path:
    files = client.files()
    for file in files:
        if file.is_file():
            return file
    if not files:
        raise OptionError(f"{client.title} opens its configuration itself ({client.hint}). Name the file: --file FILE.")
    raise OptionError(f"{client.title} has no configuration here: {' and '.join(map(str, files))} do not exist.")


def _told(servers: Sequence[Server], configuration: Configuration) -> Iterator[str]:
    yield Remark(f"# {configuration.file}")
    width = max(len(server.name) for server in servers)
    for server in servers:
        state = "gets the probe" if server.entry is not None else f"stays as it is: {server.reason}."
        lead = f"#   {server.name:<{width}}  "
        for line in textwrap.wrap(state, max(40, 100 - len(lead)), break_on_hyphens=False, break_long_words=False):
            yield Remark(lead + line)
            lead = "#" + " " * (len(lead) - 1)


def _entry_lines(path: tuple[str, ...], name: str, configuration: Configuration, text: str) -> Iterator[str]:
    """One server as ``text`` has it: with its variables, and whatever else was there."""
    if configuration.format == "toml":
        from mcp_probe.init import tomls

        yield from tomls.table_text(text, path).rstrip("\n").split("\n")
    else:
        from mcp_probe.init import jsonc

        node = jsonc.parse(text.removeprefix("\ufeff"))
        for step in path:
            node = node.members[step]
        yield from f"{json_string(name)}: {json_text(node.value)}".split("\n")
    yield ""
