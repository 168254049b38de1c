"""``mcp-probe top``: a screen, or one look as text or JSON, or a flight recording written on demand."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from mcp_probe.errors import LiveError, MissingExtraError
from mcp_probe.now import Snapshot
from mcp_probe.report.console import choose_ascii, choose_color, choose_depth, choose_width
from mcp_probe.report.paint import paint
from mcp_probe.report.places import working_directory
from mcp_probe.report.theme import glyphs
from mcp_probe.top.servers import Connection, find, nobody, pid_of, who_is, why_silent
from mcp_probe.top.text import Look, screen

FORMAT = "mcp_probe.top/1"
LOOK_S = 5.0
"""A server that hangs is given up after this."""
SNAPSHOTS = 2
"""The first one has no rates: nothing was counted before somebody watched."""
DUMP_S = 15.0
NO_TEXTUAL = (
    "The screen of `mcp-probe top` needs Textual, which is not installed. Install the extra `look`: "
    "pip install 'mcp-probe-profiler[look]'. `mcp-probe top --once` and `--json` need nothing."
)


def top(options: argparse.Namespace) -> list[str]:
    """Does what ``mcp-probe top`` is asked for; returns sentences about servers that did not answer.

    Raises: LiveError where there is no server to look at, MissingExtraError where the screen needs Textual.
    """
    if options.dump is not None:
        sys.stdout.write(f"{dump(options.dump)}\n")
        return []
    if not (options.once or options.json):
        try:
            from mcp_probe.top.app import watch
        except ImportError as exc:
            if (exc.name or "").startswith("mcp_probe"):
                raise
            raise MissingExtraError(NO_TEXTUAL) from exc
        watch(options.pid, color=False if options.no_color else None)
        return []
    snapshots, problems = look(options.pid)
    if options.json:
        json.dump({"format": FORMAT, "servers": [asdict(snapshot) for snapshot in snapshots]}, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(_drawn(snapshots, options))
    sys.stdout.flush()
    return problems


def look(pid: int | None) -> tuple[list[Snapshot], list[str]]:
    """(a snapshot of each live server, why others gave none). Raises: LiveError where none is live."""
    connections, problems = _connected(pid)
    deadline = time.monotonic() + LOOK_S
    for connection in list(connections):
        try:
            connection.say("watch")
        except LiveError as exc:
            connections.remove(connection)
            problems.append(str(exc))
    snapshots = []
    for connection in connections:
        try:
            snapshot = _latest(connection, deadline)
            if snapshot is None:
                silent = f"{connection.name} (process {connection.pid}) has not answered for {LOOK_S:g} s: "
                problems.append(silent + why_silent(connection.pid))
            else:
                snapshots.append(snapshot)
        except LiveError as exc:
            problems.append(f"{connection.name} (process {connection.pid}) has ended: {exc}.")
        finally:
            connection.close()
    return snapshots, problems


def _connected(pid: int | None) -> tuple[list[Connection], list[str]]:
    found = find()
    paths = [path for path in found.paths if pid is None or pid_of(path) == pid]
    if not paths and pid is not None and found.paths:
        living = ", ".join(str(pid_of(path)) for path in found.paths)
        raise LiveError(f"Process {pid} is no live server of this user. Live ones are: {living}.")
    if not paths:
        raise LiveError(nobody(found))
    connections, problems = [], []
    for path in paths:
        try:
            connections.append(Connection(path))
        except LiveError as exc:
            problems.append(str(exc))
    return connections, problems


def _latest(connection: Connection, deadline: float) -> Snapshot | None:
    latest = None
    count = 0
    while count < SNAPSHOTS:
        said = connection.read(max(0.0, deadline - time.monotonic()))
        if said is None:
            break
        key, content = said
        if key == "refused":
            raise LiveError(str(content))
        if key == "snapshot":
            latest, count = content, count + 1
    return latest


def dump(pid: int) -> str:
    """Have process ``pid`` write its flight recording; returns the path. Raises: LiveError."""
    connections, problems = _connected(pid)
    if not connections:
        raise LiveError(" ".join(problems))
    try:
        for connection in connections:
            connection.say("dump")
            key, content = _answer(connection)
            if key == "dumped":
                return str(Path(content["path"]))
            problems.append(str(content))
    finally:
        for connection in connections:
            connection.close()
    raise LiveError(problems[-1])


def _answer(connection: Connection) -> tuple[str, dict[str, str]]:
    deadline = time.monotonic() + DUMP_S
    while (said := connection.read(max(0.0, deadline - time.monotonic()))) is not None:
        if said[0] in ("dumped", "refused"):
            return said
    raise LiveError(f"{who_is(connection.path)} has not answered for {DUMP_S:g} s: {why_silent(connection.pid)}")


def _drawn(snapshots: list[Snapshot], options: argparse.Namespace) -> str:
    color = False if options.no_color else choose_color(sys.stdout, os.environ)
    characters = glyphs(color=color, ascii_only=choose_ascii(sys.stdout, os.environ))
    width = options.width or choose_width(sys.stdout)
    cwd = working_directory()
    texts = []
    for at, snapshot in enumerate(snapshots, 1):
        look = Look(width=width, cwd=cwd, place=(at, len(snapshots)))
        lines = screen(snapshot, look, characters).lines
        texts.append(paint(lines, choose_depth(os.environ) if color else "none"))
    return "\n".join(texts)
