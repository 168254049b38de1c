"""The private folder of one run: the socket, the list of processes, and what stands first on the command's PYTHONPATH.

::

    <run>/channel        socket that serving processes connect to
    <run>/processes      one line per Python that loaded the probe: kind, pid, version, interpreter, detail
    <run>/inject/        sitecustomize.py and the package mcp_probe, nothing else
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_probe.errors import LaunchError

# Linux allows 107 bytes and macOS 103 for the name of a socket.
_LONGEST_SOCKET_NAME = 100

_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the list of processes. ``kind`` is python, old, mcp, failed, exception or doctor."""

    kind: str
    pid: int
    python: str
    executable: str
    detail: str


def make_run_folder() -> Path:
    """A new folder that only this user may enter, filled for injection; the caller removes it.

    Raises: LaunchError where it cannot be made.
    """
    try:
        run = make_private_folder()
        (run / "processes").touch(mode=0o600)
        inject = run / "inject"
        inject.mkdir()
        shutil.copyfile(Path(__file__).with_name("sitecustomize.py"), inject / "sitecustomize.py")
        _link_package(inject / "mcp_probe")
    except OSError as exc:
        raise LaunchError(
            f"Cannot make the folder that carries the probe into the command ({exc}). "
            "Expected a temporary folder one can write to; set TMPDIR to one."
        ) from exc
    return run


def make_private_folder() -> Path:
    """A new folder that only this user may enter, for sockets whose names must be short. Raises: OSError."""
    run = Path(tempfile.mkdtemp(prefix="mcp-probe-")).resolve()
    if len(os.fsencode(run / "channel")) > _LONGEST_SOCKET_NAME or os.pathsep in str(run):
        run.rmdir()
        run = Path(tempfile.mkdtemp(prefix="mcp-probe-", dir="/tmp")).resolve()
    return run


def _link_package(link: Path) -> None:
    """A link rather than a copy: the child finds compiled files there, and the package outlives the run."""
    try:
        link.symlink_to(_PACKAGE, target_is_directory=True)
    except OSError:
        shutil.copytree(_PACKAGE, link)


def listen(run: Path, name: str = "channel") -> socket.socket:
    """A listening socket of ``run``. Raises: LaunchError where the file system allows none."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(run / name))
        listener.listen(128)
    except OSError as exc:
        listener.close()
        raise LaunchError(
            f"Cannot open the socket on which the server reports ({exc}). "
            "Expected a temporary folder on a local file system; set TMPDIR to one."
        ) from exc
    return listener


def environment(run: Path, inherited: Mapping[str, str], **options: object) -> dict[str, str]:
    """``inherited`` plus what loads the probe in every Python below the command, ``options`` as MCP_PROBE_<NAME>."""
    added = {"MCP_PROBE_RUN": str(run), "PYTHONPATH": str(run / "inject")}
    if inherited.get("PYTHONPATH"):  # an empty entry would mean the current folder
        added["PYTHONPATH"] += os.pathsep + inherited["PYTHONPATH"]
    added.update((f"MCP_PROBE_{name.upper()}", str(value)) for name, value in options.items())
    return {**inherited, **added}


def processes_seen(run: Path) -> list[Seen]:
    """Every process below the command that loaded the probe, oldest first; several lines for one are normal."""
    try:
        text = (run / "processes").read_text("utf-8", "replace")
    except OSError:
        return []
    rows = (line.split("\t") for line in text.splitlines())
    return [Seen(row[0], int(row[1]), *row[2:]) for row in rows if len(row) == 5 and row[1].isdigit()]
