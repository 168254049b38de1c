"""The parent of `mcp-probe run`: starts the command, listens to what it serves, and reports how it ended.

The command gets our stdin, stdout, stderr, process group and other open files as they are: no byte passes
through us. What we add to its exit is bounded by ``_DRAIN_S`` here, by ``TelemetrySettings.exit_s`` where telemetry
goes out from here, and by whoever publishes the outcome.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_probe.errors import LaunchError
from mcp_probe.launch import inject, lifeline
from mcp_probe.launch.signals import SignalSource, await_command, signal_source
from mcp_probe.record.parts import RecordingFile
from mcp_probe.record.private_file import create

if TYPE_CHECKING:
    from mcp_probe.export.exporters import TelemetrySettings
    from mcp_probe.launch.outcome import Outcome
    from mcp_probe.launch.receive import Receiver, Served
    from mcp_probe.report.page.window import Window

_DRAIN_S = 0.25

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run_command(
    command: Sequence[str],
    *,
    publish: Callable[[Outcome], None],
    prepare: Callable[[], None],
    slow_step_ms: float = 10.0,
    record: Path | None = None,
    record_limit: int | None = None,
    tiers: Mapping[str, str] | None = None,
    relay: TelemetrySettings | None = None,
    window: Callable[[], Window] | None = None,
) -> Outcome:
    """Runs ``command`` under the probe and returns its last outcome. Main thread only; blocks until it ends.

    Args:
        publish: called with the outcome when the command has ended; and once before, with no exit code, if it
            lingers after having been told to end, since a SIGKILL of the whole group may follow.
        prepare: called on a thread while the command runs, to load what ``publish`` will need; may raise.
        slow_step_ms: as in ``mcp_probe.attach``.
        tiers: its ``memory``, ``measures``, ``awaits``, ``full`` and ``resources``; what is not there is left to its
            MCP_PROBE_*.
        record: gets the frames of the first serving process as they arrive; FILE.2, FILE.3 … those of others.
        record_limit: bytes that each of these recordings may take; the newest frames are kept.
        relay: where this process sends the telemetry of what is served; the last delivery may take its ``exit_s``.
        window: makes what takes a serving process's frames in for its page; ``None`` for no pages.

    Raises: LaunchError where the command cannot be started, OptionError or MissingExtraError where telemetry cannot be
        set up; nothing has run then.
    This module can be imported on POSIX systems only.
    """
    program = find_program(command)
    options: dict[str, object] = {"slow_step_ms": slow_step_ms, **(tiers or {})}
    if relay is not None:
        from mcp_probe.export.telemetry import ready

        options |= {"telemetry": "relay", "otlp": ""}
        relay = relay if ready(relay) else None
    with ExitStack() as stack:
        recordings = None if record is None else Recordings(record, record_limit)
        if recordings is not None:
            stack.callback(recordings.close)
        run = inject.make_run_folder()
        held = lifeline.hold(str(run))
        if held is not None:
            stack.callback(held.close)  # after the folder is gone: what still serves then is left alone
        stack.callback(shutil.rmtree, run, ignore_errors=True)
        listener = inject.listen(run)
        environment = inject.environment(run, os.environ, **options)
        source = stack.enter_context(signal_source())
        process = _spawn(program, command, environment, source)
        channel = ReceiverThread(listener, recordings, slow_step_ms, relay, window, prepare)

        def report(exit_code: int | None) -> Outcome:
            from mcp_probe.launch.outcome import outcome

            said = outcome(command, exit_code, channel.served(), inject.processes_seen(run))
            publish(said)
            return said

        exit_code = process.returncode = await_command(
            process.pid, source, on_overdue=lambda: report(None), has_all=channel.has_all
        )
        channel.finish(_DRAIN_S)
        return report(exit_code)


def find_program(command: Sequence[str]) -> str:
    """Path of the program that ``command`` names, looked up as a shell would. Raises: LaunchError."""
    if not command:
        raise LaunchError("No command was given. Expected one after `--`: mcp-probe run -- python server.py")
    name = command[0]
    program = shutil.which(name)
    if program is not None:
        return program
    if os.path.isdir(name) and os.sep in name:
        raise LaunchError(f"Cannot run {name}: it is a folder. Nothing was started.")
    if os.path.exists(name) and os.sep in name:
        raise LaunchError(f"Cannot run {name}: it is not executable. Make it so, or name its interpreter before it.")
    if os.sep in name:
        raise LaunchError(f"Cannot run {name}: there is no such file. Nothing was started.")
    hint = f" A script of this folder is run as `python {name}`." if name.endswith(".py") else ""
    raise LaunchError(f"Cannot run {name}: no program of that name is on PATH. Nothing was started.{hint}")


def numbered(path: Path, position: int) -> Path:
    """Where the output of the ``position``-th serving process goes: FILE, FILE.2, FILE.3 …"""
    return path if position == 1 else path.with_name(f"{path.name}.{position}")


class Recordings:
    """FILE, made before anything starts, and FILE.2, FILE.3 … of further serving processes.

    Raises: LaunchError where FILE cannot be written.
    """

    def __init__(self, path: Path, limit_bytes: int | None) -> None:
        self._path = path
        self._limit = limit_bytes
        self._made = 0
        try:
            self._first = self._make(path)
        except OSError as exc:
            raise LaunchError(f"Cannot write the recording {path}: {exc.strerror}. Nothing was started.") from exc

    def next(self) -> RecordingFile:
        """The next one. Raises: OSError where it cannot be written."""
        self._made += 1
        return self._first if self._made == 1 else self._make(numbered(self._path, self._made))

    def close(self) -> None:
        """What nothing has been written to is left as it is; whoever writes to another one closes it."""
        self._first.close()

    def _make(self, path: Path) -> RecordingFile:
        return RecordingFile(create(path), str(path), self._limit, reopen=lambda: create(path))


def _spawn(
    program: str, command: Sequence[str], environment: dict[str, str], source: SignalSource
) -> subprocess.Popen[bytes]:
    """Start it, its signals as ours were. Whoever waits for it sets its ``returncode``."""
    handled = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
    mask, parent, prctl = source.mask_before, os.getpid(), _prctl()

    def in_child() -> None:
        """Between fork and exec; this process has no second thread yet."""
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before the kernel knew
                os._exit(1)
        for number in handled:  # a signal that comes before exec must not end in a handler of ours
            signal.signal(number, signal.SIG_DFL)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            command, executable=program, env=environment, close_fds=False, preexec_fn=in_child, restore_signals=True
        )
    except OSError as exc:
        raise LaunchError(
            f"Cannot run {program}: {exc.strerror}. Expected a program, or a script whose first line names one (#!)."
        ) from exc


def _prctl() -> Callable[..., int] | None:
    """Linux tells a child of its parent's death. ``None`` elsewhere, and in an interpreter without ctypes."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except Exception:  # noqa: BLE001 - the command may then outlive this process
        return None


class ReceiverThread:
    """Loads the receiver and runs it while the command runs, so that neither delays its start or its end."""

    def __init__(
        self,
        listener: socket.socket,
        recordings: Recordings | None,
        slow_step_ms: float,
        relay: TelemetrySettings | None,
        window: Callable[[], Window] | None,
        prepare: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._recordings = recordings
        self._slow_step_ms = slow_step_ms
        self._relay = relay
        self._window = window
        self._prepare = prepare
        self._receiver: Receiver | None = None
        self._loaded = threading.Event()
        threading.Thread(target=self._receive, name="mcp-probe-receiver", daemon=True).start()

    def _receive(self) -> None:
        try:
            from mcp_probe.launch.receive import Receiver

            self._receiver = Receiver(
                self._listener,
                open_record=None if self._recordings is None else self._recordings.next,
                slow_step_ms=self._slow_step_ms,
                relay=self._relay,
                window=self._window,
            )
        finally:
            self._loaded.set()
        threading.Thread(target=self._prepare_quietly, name="mcp-probe-prepare", daemon=True).start()
        self._receiver.receive()

    def _prepare_quietly(self) -> None:
        with suppress(Exception):  # what is missing shows when it is needed
            self._prepare()

    def served(self) -> tuple[Served, ...]:
        """As :meth:`Receiver.served`."""
        self._loaded.wait()
        return () if self._receiver is None else self._receiver.served()

    def has_all(self) -> bool:
        """As :meth:`Receiver.has_all`; never waits for it to be loaded."""
        return self._receiver is not None and self._receiver.has_all()

    def finish(self, seconds: float) -> None:
        """Take what has been sent by now, for at most ``seconds``; then stop."""
        self._loaded.wait()
        if self._receiver is not None:
            self._receiver.finish(seconds)
