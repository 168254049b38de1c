"""Starting `mcp-probe run` on programs that play back frames, as tests of the launcher need it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from mcp_probe.model import Frame
from mcp_probe.record.file import encode
from tests.frames import MS, SECOND, make_end, make_header, make_request

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 120  # of any one run; far above what a loaded machine needs
SEND_ALL = "sink.write(lines)\nsink.close()\n"

THREE_REQUESTS: tuple[Frame, ...] = (
    make_header(server="played"),
    *(make_request(id=number, arrival_ns=number * SECOND, busy=2 * MS, awaiting=8 * MS) for number in (1, 2, 3)),
    make_end(at_ns=4 * SECOND),
)

# What stands for a server: it has the probe's channel, and nothing of the probe's session.
_PLAY = """
import os, sys
from mcp_probe.launch.channel import ChannelSink

sink = ChannelSink(os.path.join(os.environ["MCP_PROBE_RUN"], "channel"))
lines = open({lines!r}, "rb").readlines()

def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()

"""


def player(
    folder: Path, body: str, frames: Iterable[Frame] = THREE_REQUESTS, *, python: str = sys.executable
) -> list[str]:
    """Command of a program in ``folder`` that runs ``body``, with ``sink``, ``lines`` (of frames) and ``say``."""
    lines = folder / "lines"
    lines.write_bytes(b"".join(encode(frame) for frame in frames))
    return program(folder, _PLAY.format(lines=str(lines)) + body, python=python)


def program(folder: Path, source: str, *, python: str = sys.executable) -> list[str]:
    """Command of a Python program with this ``source``."""
    script = folder / "program.py"
    script.write_text(source, "utf-8")
    return [python, str(script)]


UNHURRIED = (
    "import sys; from mcp_probe.launch import parent; parent._DRAIN_S = 20.0; "
    "from mcp_probe.cli import main; sys.exit(main())"
)
"""`mcp-probe` that waits for what the command has sent before its end for as long as a busy machine needs."""


def probe_run(command: Sequence[str], *options: str) -> list[str]:
    """The command line that runs ``command`` under the probe."""
    return [sys.executable, "-c", UNHURRIED, "run", *options, "--", *command]


def environment(**added: str) -> dict[str, str]:
    """This process's, without what would reach into the program or change the look of the report."""
    ours = ("PYTHONPATH", "NO_COLOR", "FORCE_COLOR", "CI", "MCP_PROBE_RUN", "MCP_PROBE_SLOW_STEP_MS")
    return {**{key: value for key, value in os.environ.items() if key not in ours}, **added}


def run(
    command: Sequence[str], *options: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``command`` under the probe to its end."""
    return subprocess.run(
        probe_run(command, *options),
        input=stdin,
        capture_output=True,
        env=env or environment(),
        cwd=ROOT,
        timeout=LIMIT_S,
    )


class Started(subprocess.Popen[bytes]):
    """A run that is killed, with what it runs, where the test that waits for it fails: leaving it waits for its end."""

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        super().__exit__(kind, exc, trace)


def start(command: Sequence[str], *options: str, **popen: Any) -> Started:
    """Starts ``command`` under the probe, in a process group of its own, as SDK clients do."""
    given: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
        "env": environment(),
        **popen,
    }
    return Started(probe_run(command, *options), cwd=ROOT, **given)
