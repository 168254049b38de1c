"""``mcp-probe demo``: the bundled server under a bundled mixed load, profiled as a user would profile it.

The server is started by the SDK's own client over real stdio, and its command is the one a user would put
into a client's configuration: ``mcp-probe run -- python -m mcp_probe.workloads.demo_server``.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TextIO

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import LaunchError, MissingExtraError, OptionError, RecordingError
from mcp_probe.model import Summary
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.status_line import StatusLine

INTERRUPTED = "Interrupted: the report is of what had been served by then."

LOAD_SECONDS = 5.0
"""How long the load takes at scale 1 on two slow cores; starting and stopping adds some 3 s."""

# Far above any healthy run; it only keeps a hanging server from hanging the demo.
_LIMIT_FACTOR = 6
_LIMIT_EXTRA_SECONDS = 30.0


def run(*, seconds: float | None = None) -> Summary:
    """Runs the demo and returns what the probe saw; blocks for some 8 s, or ``seconds`` of load and 3 more.

    The first Ctrl-C ends it early: what was seen by then is returned, with the note :data:`INTERRUPTED`.

    ``seconds`` scales the number of calls and is met only roughly; ``None`` = ``LOAD_SECONDS``. Writes one
    changing line of progress to stderr if that is a terminal. Must not be called inside a running event loop.

    Raises:
        MissingExtraError: the mcp package is missing or older than 2.0.
        OptionError: ``seconds`` is not above 0.
        LaunchError: the server could not be started, ended too early, or did not answer in time.
        RecordingError: the profiled server left no readable recording.
        KeyboardInterrupt: Ctrl-C before anything was seen.
    """
    if seconds is not None and not 0 < seconds <= 3600:
        raise OptionError(f"seconds is {seconds}; expected more than 0 and at most 3600.")
    _require_sdk()
    scale = (seconds or LOAD_SECONDS) / LOAD_SECONDS
    with tempfile.TemporaryDirectory(prefix="mcp-probe-demo-") as folder:
        recording = Path(folder, "recording.jsonl")
        interrupted = False
        with Path(folder, "stderr.txt").open("w+", encoding="utf-8", errors="replace") as stderr:
            try:
                _load(recording, stderr, scale)
            except KeyboardInterrupt:
                interrupted = True
        return _interrupted(recording) if interrupted else _folded(recording)


def _folded(recording: Path) -> Summary:
    fold = Fold()
    fold.add_all(read_recording(recording))
    return fold.summary()


def _interrupted(recording: Path) -> Summary:
    """What had been seen by then. Raises: KeyboardInterrupt where that is nothing."""
    try:
        summary = _folded(recording)
    except RecordingError:
        raise KeyboardInterrupt from None
    if not summary.operations:
        raise KeyboardInterrupt
    return replace(summary, notes=(*summary.notes, INTERRUPTED))


def server_command(recording: Path) -> list[str]:
    """The command line that serves the demo's tools under the probe and records to ``recording``."""
    python = [sys.executable, "-m"]
    options = ["--record", str(recording), "--output", str(recording.with_suffix(".txt"))]
    return [*python, "mcp_probe", "run", *options, "--", *python, "mcp_probe.workloads.demo_server"]


def _require_sdk() -> None:
    """Raises a sentence that says what to install unless mcp 2.0 or newer can be imported."""
    try:
        if importlib.util.find_spec("mcp.server.mcpserver") is not None:
            return
        found = f"mcp {metadata.version('mcp')}"
    except (ImportError, metadata.PackageNotFoundError):
        found = "no mcp package"
    raise MissingExtraError(
        f"The demo serves tools of its own with the mcp package, 2.0 or newer; {sys.executable} has {found}. "
        'Install it there: pip install "mcp-probe-profiler[bench]", or just "mcp>=2". '
        "(Profiling a server of your own with `mcp-probe run` needs nothing installed.)"
    )


def _load(recording: Path, stderr: TextIO, scale: float) -> None:
    import anyio

    async def bounded() -> None:
        with anyio.fail_after(scale * LOAD_SECONDS * _LIMIT_FACTOR + _LIMIT_EXTRA_SECONDS):
            await _connect_and_drive(server_command(recording), stderr, scale)

    try:
        anyio.run(bounded)
    except Exception as exc:
        stderr.seek(0)
        said = " ".join(stderr.read().split())[-500:] or "nothing"
        raise LaunchError(
            f"The demo's server did not serve its load ({type(exc).__name__}: {exc}); on stderr it said: {said}. "
            "`mcp-probe doctor` says what works in this Python."
        ) from exc


async def _connect_and_drive(command: list[str], stderr: TextIO, scale: float) -> None:
    from mcp_probe.workloads.client import stdio_client_session
    from mcp_probe.workloads.demo_load import drive

    with StatusLine(sys.stderr, "demo") as line:
        line.show("starting the server")
        async with stdio_client_session(command, stderr=stderr) as session:
            await drive(session, scale=scale, show=line.show)
            line.show("stopping the server")
