"""Profiles of a server in this process, and of one that a client starts."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp_probe import native
from mcp_probe.errors import OptionError, ProbeError
from mcp_probe.model import Frame
from mcp_probe.process import PROCESS
from mcp_probe.record.file import read_recording
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import Probe
from mcp_probe.testing.errors import NotMeasuredError
from mcp_probe.testing.profile import LOOKED_INTO_MS, Profile
from mcp_probe.testing.tally import MAX_CALLS, Call, Tally

OPTIONS: Mapping[str, Any] = {
    "full": True,
    "memory": "detailed",
    "slow_step_ms": LOOKED_INTO_MS,
    "telemetry": "off",
}
"""Of a test's probe, unless the test says otherwise; ``MCP_PROBE_*`` changes none of these."""

COMMAND_OPTIONS = ("memory", "measures", "awaits", "slow_step_ms")
END_S = 20.0
"""How long a client's server may take to end once its profile is asked; its client has closed its input by then."""


def profile_server(server: Any, **options: Any) -> Profile:
    """The profile of ``server``, attached from now on; the test makes a client in the same process.

    Raises:
        UnsupportedServerError: no adapter knows the object.
        OptionError: for bad options, and if a probe is attached to it already.
    """
    with PROCESS.lock:
        for other in PROCESS.sessions:
            if other.serves(server):
                if not other.automatic:
                    raise OptionError(
                        f"{other!r} is attached to this server already, and a server has one probe. "
                        "Attach where the server is started (below `if __name__ == '__main__'`), not where it is made; "
                        "or detach that probe before the test."
                    )
                other.release(server)
        probe = KeepingProbe(**{**OPTIONS, **options})
        try:
            probe.attach(server)
        except ProbeError:
            probe.detach()
            raise
    return Profile(InProcess(probe))


def profile_command(command: Sequence[str], **options: Any) -> Profile:
    """The profile of the server that ``command`` starts: the test's client starts :attr:`Profile.command` instead.

    Raises: OptionError for an option that ``mcp-probe run`` does not have.
    """
    if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
        raise OptionError(f'command is {command!r}; expected a list of strings, such as [sys.executable, "server.py"].')
    unknown = sorted(set(options) - set(COMMAND_OPTIONS))
    if unknown:
        known = ", ".join(COMMAND_OPTIONS)
        raise OptionError(f"Unknown option {unknown[0]!r} for a server of its own process; known options are {known}.")
    return Profile(OwnProcess(tuple(command), options))


class KeepingProbe(Probe):
    """A probe that keeps its requests when they have ended, so that it can be asked what they still hold."""

    def __init__(self, **options: Any) -> None:
        self.kept: dict[int, RawRequest] = {}
        self.fresh: deque[Frame] = deque()
        super().__init__(**options)
        self.add_listener(self)

    def take_finished(self) -> list[RawRequest]:
        """Finished requests, oldest first."""
        batch = super().take_finished()
        if len(self.kept) < MAX_CALLS:
            self.kept.update((raw.id, raw) for raw in batch)
        return batch

    def take(self, frames: Sequence[Frame]) -> None:
        """As a listener of its own: keep them for who asks, on whatever thread that is."""
        self.fresh.extend(frames)

    def close(self, timeout_s: float) -> None:
        """As a listener."""


class InProcess:
    """A source in this process."""

    command: tuple[str, ...] = ()

    def __init__(self, probe: KeepingProbe) -> None:
        self._probe = probe
        self._tally = Tally(alone=False)
        self._held: dict[int, int] | None = None  # what each call held as the probe was detached

    def tally(self) -> Tally:
        """See :class:`Source`."""
        if self._probe.attached:
            self._probe.snapshot()  # for its frames: all that have ended, and all that have not
        for _ in range(len(self._probe.fresh)):
            self._tally.add(self._probe.fresh.popleft())
        return self._tally

    def held_bytes(self, calls: Sequence[Call]) -> list[int] | None:
        """See :class:`Source`."""
        if native.memory is None:
            raise NotMeasuredError(
                "What calls retain in this process is known only with the accelerator, which is not here "
                "(`mcp-probe doctor` says why). Install a wheel that has it, or a compiler."
            )
        header = self._tally.header
        if header is None or "native-shadow" not in header.memory:  # what others follow is not all
            return None
        held = self._look() if self._held is None else self._held
        if any(call.id not in held for call in calls):
            return None
        return [held[call.id] for call in calls]

    def stop(self) -> None:
        """See :class:`Source`."""
        if self._probe.attached:
            self._probe.snapshot()
            self._held = self._look()
            self._probe.detach()
        self._probe.kept.clear()

    def clean(self) -> None:
        """Nothing is left."""

    def _look(self) -> dict[int, int]:
        """What requests hold after a full collection: (id, bytes) of those of which it is known."""
        gc.collect()
        read = ((raw.id, raw.memory()) for raw in list(self._probe.kept.values()))
        return {number: figures[3] for number, figures in read if figures is not None and figures[3] is not None}


class OwnProcess:
    """A source that a client starts: `mcp-probe run` with a recording."""

    def __init__(self, command: tuple[str, ...], options: Mapping[str, Any]) -> None:
        self._folder = tempfile.mkdtemp(prefix="mcp-probe-test-")
        self._recording = Path(self._folder, "recording.jsonl")
        self._report = Path(self._folder, "report.txt")
        self._tally: Tally | None = None
        told = {"memory": "detailed", "awaits": "on", "slow_step_ms": LOOKED_INTO_MS, **options}
        if isinstance(told["awaits"], bool):
            told["awaits"] = "on" if told["awaits"] else "off"
        flags = [part for name, value in told.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        files = ["--full", "--record", str(self._recording), "--output", str(self._report)]
        self.command = (sys.executable, "-m", "mcp_probe", "run", *files, *flags, "--", *command)

    def tally(self) -> Tally:
        """See :class:`Source`."""
        if self._tally is None:
            tally = Tally(alone=True)
            for frame in self._all():
                tally.add(frame)
            self._tally = tally
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._tally

    def held_bytes(self, calls: Sequence[Call]) -> list[int] | None:
        """See :class:`Source`."""
        return None

    def stop(self) -> None:
        """See :class:`Source`."""
        with suppress(ProbeError):  # who asks is told why
            if self._recording.exists():
                self.tally()

    def clean(self) -> None:
        """Nobody will ask any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _all(self) -> list[Frame]:
        if not self._recording.exists():
            raise NotMeasuredError(
                "The server was never started: have the test's client start profile.command instead of its command."
            )
        deadline = time.monotonic() + END_S
        while not (self._report.exists() and self._report.stat().st_size):
            if time.monotonic() > deadline:
                raise NotMeasuredError(
                    "The server has not ended, or was killed before its figures could be written. Close its client, "
                    "and ask the profile after that; a client that is in a hurry may kill a slow server."
                )
            time.sleep(0.02)
        return list(read_recording(os.fspath(self._recording)))
