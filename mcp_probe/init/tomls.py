"""TOML as Codex reads it: a server's command and arguments replaced in the text, everything else left as it is."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mcp_probe.errors import MissingExtraError, OptionError, RecordingError
from mcp_probe.init.clients import Entry, toml_string

try:
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
except ImportError:
    tomllib = None  # type: ignore[assignment]


def load(text: str, file: Path) -> Any:
    """What ``text`` says. Raises: RecordingError where it is not TOML; MissingExtraError where nothing reads TOML."""
    if tomllib is None:
        raise MissingExtraError(f"{file} is TOML, which Python 3.10 cannot read. Install tomli, or use Python 3.11.")
    try:
        return tomllib.loads(text)
    except ValueError as exc:
        raise RecordingError(f"{file} is not TOML: {exc}. Nothing was changed.") from exc


def replaced(text: str, path: tuple[str, ...], entry: Entry) -> str:
    """``text`` with the command and arguments of the server that ``path`` leads to.

    Raises: OptionError where the server has no table of its own, ``[mcp_servers.NAME]``.
    """
    name = path[-1]
    start, end = _table(text, path)
    table = text[start:end]
    command = _value_of(table, "command")
    if command is None:
        raise OptionError(f"The server {name} is not written as a table [mcp_servers.{name}] with a `command`.")
    args = _value_of(table, "args")
    listed = "[" + ", ".join(toml_string(each) for each in entry.args) + "]"
    edits = [(*command, toml_string(entry.command))]
    edits.append((*args, listed) if args else (command[1], command[1], f"\nargs = {listed}"))
    for first, last, new in sorted(edits, reverse=True):
        table = table[:first] + new + table[last:]
    return text[:start] + table + text[end:]


def table_text(text: str, path: tuple[str, ...]) -> str:
    """The table of the server that ``path`` leads to, with its header."""
    start, end = _table(text, path)
    return text[text.rfind("\n", 0, start - 1) + 1 : end]


def _table(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Where the lines below the table's header begin and end; (0, 0) where there is no such header."""
    names = [rf"""(?:{re.escape(each)}|"{re.escape(each)}"|'{re.escape(each)}')""" for each in path]
    dotted = r"[ \t]*\.[ \t]*".join(names)
    header = re.search(rf"^[ \t]*\[[ \t]*{dotted}[ \t]*\][^\n]*\n", text, re.M)
    if header is None:
        return 0, 0
    following = re.compile(r"^[ \t]*\[{1,2}[ \t]*[\w\"'.-]+[^\n=,]*\]{1,2}[ \t\r]*(?:#[^\n]*)?$", re.M)
    after = following.search(text, header.end())
    return header.end(), after.start() if after else len(text)


def _value_of(table: str, key: str) -> tuple[int, int] | None:
    """Where the value of ``key`` stands: the shortest text that TOML reads as what the table has."""
    line = re.search(rf"^[ \t]*(?:{key}|\"{key}\")[ \t]*=[ \t]*", table, re.M)
    if line is None or tomllib is None:
        return None
    start = line.end()
    for closing in re.finditer(r"[\"'\]]", table[start:]):
        end = start + closing.end()
        if end - start == 2 and table[start] != "[" and table[end : end + 1] == table[start]:
            continue  # the first quotes of a string of several lines
        try:
            tomllib.loads(f"x = {table[start:end]}")
        except ValueError:
            continue
        return start, end
    return None
