"""What goes over the live channel: one JSON object a line, its one key says what it is.

A server begins with ``hello``. A viewer names its version in each line that it sends. Versions must be equal: what a
snapshot holds changes with them, and a viewer that guesses shows wrong numbers.

::

    server  {"hello": {"format": "mcp_probe.live", "version": 1, "probe": "0.1.0", "pid": 4711, "name": "notes"}}
    viewer  {"watch": {"version": 1}}             a snapshot now, and each second from now on
    viewer  {"detail": {"version": 1, "id": 17}}  one request, opened
    viewer  {"dump": {"version": 1}}              write a flight recording
    server  {"snapshot": …}  {"detail": …}  {"dumped": …}  {"refused": "a sentence"}  {"bye": "a reason"}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mcp_probe.errors import LiveError

# 1: first version (2026-11).
FORMAT = "mcp_probe.live"
VERSION = 1
LONGEST_QUESTION = 4_096
LONGEST_ANSWER = 8 << 20


def encoded(key: str, value: object) -> bytes:
    """One line."""
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps({key: plain}, separators=(",", ":")).encode() + b"\n"


def with_dropped(line: bytes, dropped: int) -> bytes:
    """A snapshot's ``line`` for the viewer who was too slow for so many: only that differs between viewers."""
    return line if not dropped else line.replace(b'"dropped":0', b'"dropped":%d' % dropped, 1)


def decoded(line: bytes) -> tuple[str, Any]:
    """(what it is, its content). Raises: LiveError where it is no line of this channel."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or len(found) != 1:
        raise LiveError("The live channel carries something else than mcp_probe's lines. Nothing can be shown of it.")
    [(key, value)] = found.items()
    return key, value


def check_hello(hello: Any) -> None:
    """Raises: LiveError where the server speaks another version of the channel, or is none of ours."""
    if not isinstance(hello, dict) or hello.get("format") != FORMAT:
        raise LiveError("Something else than an mcp_probe server listens there. Nothing was asked of it.")
    if hello.get("version") != VERSION:
        raise LiveError(
            f"The server {hello.get('name')!r} (process {hello.get('pid')}) runs mcp_probe {hello.get('probe')}, whose "
            f"live channel has version {hello.get('version')}; this `mcp-probe` understands version {VERSION}. "
            f"Start `mcp-probe top` from mcp_probe {hello.get('probe')}."
        )


def complaint_about(question: Any) -> str | None:
    """Why a server does not answer ``question``, the content of a viewer's line."""
    version = question.get("version") if isinstance(question, dict) else None
    if version == VERSION:
        return None
    return (
        f"This server's live channel has version {VERSION}; the viewer asks for version {version}. "
        "Start `mcp-probe top` from the mcp_probe that the server runs."
    )


def built(kind: type, value: Any) -> Any:
    """An object of the dataclass ``kind`` from what JSON made of one. Raises: LiveError."""
    try:
        return _built(kind, value)
    except (TypeError, KeyError, AttributeError) as exc:
        raise LiveError(f"A line of the live channel is not what version {VERSION} has there ({exc}).") from exc


def _built(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        [kind] = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return tuple(_built(item, each) for each in value)
    if isinstance(kind, type) and is_dataclass(kind):
        made: Callable[..., Any] = kind
        return made(**{name: _built(hint, value[name]) for name, hint in _fields_of(kind)})
    return value


@cache
def _fields_of(kind: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return [(each.name, hints[each.name]) for each in fields(kind)]
