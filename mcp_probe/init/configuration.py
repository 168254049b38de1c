"""A client's configuration file: which servers it has, and its text with the probe before some of them.

Only the command and the arguments of a server are replaced; every other character stays. What comes out is read once
more and compared with what went in, so a file that was not understood is never written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.init import jsonc, tomls
from mcp_probe.init.clients import Entry, json_string, json_text
from mcp_probe.init.entry import HTTP_SENTENCE, is_probed, why_not

_HOLDERS = ("mcpServers", "servers", "context_servers")
_MOST_BYTES = 64 * 1024 * 1024
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a configuration. ``entry`` is ``None`` where ``reason`` says why it cannot get the probe."""

    name: str
    path: tuple[str, ...]
    """The names that lead to it in the file."""
    entry: Entry | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A file as it was read."""

    file: Path
    text: str
    format: str
    servers: tuple[Server, ...]


def read(file: Path) -> Configuration:
    """Reads a configuration in JSON, JSON with comments, or TOML (by its name).

    Raises: RecordingError where it cannot be read, or is neither; OptionError where no server is in it.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise RecordingError(f"{file} has more than {_MOST_BYTES >> 20} MB. Expected a client's configuration.")
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as exc:
        raise RecordingError(f"{file} is not UTF-8 (byte {exc.start}). Expected a client's configuration.") from exc
    except OSError as exc:
        raise RecordingError(f"Cannot read {file}: {exc.strerror}. Expected a client's configuration.") from exc
    format = "toml" if file.suffix.lower() == ".toml" else "json"
    value = _value(text, format, file)
    servers = tuple(_server(path, fields) for path, fields in _holders(value, format))
    if not servers:
        holders = "`mcp_servers`" if format == "toml" else ", ".join(f"`{each}`" for each in _HOLDERS)
        raise OptionError(f"{file} has no MCP servers. Expected some in {holders}.")
    return Configuration(file, text, format, servers)


def _value(text: str, format: str, file: Path) -> Any:
    if format == "toml":
        return tomls.load(text, file)
    try:
        return jsonc.parse(text.removeprefix(_BOM)).value
    except jsonc.NotJson as exc:
        raise RecordingError(f"{file} is not JSON: {exc}. Nothing was changed.") from exc


def _holders(value: Any, format: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(names that lead to it, what stands there) of each server. Claude Code also keeps some for each project."""
    if not isinstance(value, dict):
        return
    roots: list[tuple[tuple[str, ...], Any]] = [((), value), (("mcp",), value.get("mcp"))]
    projects = value.get("projects")
    if isinstance(projects, dict):
        roots += [(("projects", name), project) for name, project in projects.items()]
    for path, root in roots:
        for key in ("mcp_servers",) if format == "toml" else _HOLDERS:
            servers = root.get(key) if isinstance(root, dict) else None
            if isinstance(servers, dict):
                yield from (((*path, key, name), fields) for name, fields in servers.items())


def _server(path: tuple[str, ...], fields: Any) -> Server:
    name = path[-1]
    if not isinstance(fields, dict):
        return Server(name, path, None, "it is not written as a server is")
    command, args = fields.get("command"), fields.get("args", [])
    if command is None and any(isinstance(fields.get(key), str) for key in ("url", "httpUrl", "serverUrl")):
        return Server(name, path, None, HTTP_SENTENCE.rstrip("."))
    if not isinstance(command, str) or not command:
        return Server(name, path, None, "it has no `command` that is a string")
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        return Server(name, path, None, "its `args` are not a list of strings")
    if is_probed(command, args):
        return Server(name, path, None, "the probe is before it already")
    reason = why_not(command)
    if reason is not None:
        return Server(name, path, None, reason)
    return Server(name, path, Entry(name, command, tuple(args)))


def changed(configuration: Configuration, entries: Mapping[tuple[str, ...], Entry]) -> str:
    """The text with the commands of ``entries``, by the names that lead to them.

    Raises: OptionError where that cannot be done without touching anything else.
    """
    text, format, file = configuration.text, configuration.format, configuration.file
    for path, entry in entries.items():
        text = tomls.replaced(text, path, entry) if format == "toml" else _json_replaced(text, path, entry)
    wanted = deepcopy(_value(configuration.text, format, file))
    for path, entry in entries.items():
        at = wanted
        for name in path:
            at = at[name]
        at["command"], at["args"] = entry.command, list(entry.args)
    if _value(text, format, file) != wanted:
        raise OptionError(f"{file} is written in a way that could not be changed safely. Nothing was changed.")
    return text


def _json_replaced(text: str, path: tuple[str, ...], entry: Entry) -> str:
    bom = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    node = jsonc.parse(text)
    for name in path:
        node = node.members[name]
    command, args = node.members["command"], node.members.get("args")
    newline = "\r\n" if "\r\n" in text else "\n"
    listed = json_text(list(entry.args), jsonc.indent_at(text, command.start)).replace("\n", newline)
    edits = [(command.start, command.end, json_string(entry.command))]
    if args is not None:
        edits.append((args.start, args.end, listed))
    else:
        lead = newline + jsonc.indent_at(text, command.start) if "\n" in text[node.start : command.start] else " "
        edits.append((command.end, command.end, f',{lead}"args": {listed}'))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return bom + text


def write(configuration: Configuration, text: str) -> Path:
    """Puts ``text`` in place of the file at once, and returns the copy of the old one, which stays.

    Raises: OptionError where it cannot be written, or somebody has changed it since it was read.
    """
    file = configuration.file.resolve()
    try:
        if file.read_bytes() != configuration.text.encode():
            raise OptionError(f"{file} was changed by another program meanwhile. Nothing was written; do it again.")
        kept = _free_name(file)
        shutil.copy2(file, kept)
        with tempfile.NamedTemporaryFile("wb", dir=file.parent, prefix=f".{file.name}.", delete=False) as stream:
            stream.write(text.encode())
        try:
            shutil.copymode(file, stream.name)
            Path(stream.name).replace(file)
        except OSError:
            with suppress(OSError):
                Path(stream.name).unlink()
            raise
    except OSError as exc:
        raise OptionError(f"Cannot write {file}: {exc.strerror}. Nothing was changed.") from exc
    return kept


def _free_name(file: Path) -> Path:
    for number in count(1):
        kept = file.with_name(f"{file.name}.before-mcp-probe" + (f".{number}" if number > 1 else ""))
        if not kept.exists():
            return kept
    raise AssertionError("unreachable")
