"""The command's side of `mcp-probe attach`: enters the server, listens while it runs, has the probe leave.

::

    <run>/enter.py    the script that the server runs
    <run>/control     socket: what became of it, in lines of JSON; `leave`
    <run>/channel     socket: frames, as with `mcp-probe run`
    <run>/mcp_probe   a copy of the package, only where the server is another user's, who may not read ours

Whatever ends this command, the server's end of ``control`` notices, and the probe leaves.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_probe import __version__
from mcp_probe.errors import AttachError, LaunchError
from mcp_probe.launch import inject
from mcp_probe.launch.inside import knock
from mcp_probe.launch.outcome import Report
from mcp_probe.launch.parent import ReceiverThread, Recordings
from mcp_probe.launch.receive import Served
from mcp_probe.record.private_file import opened

if TYPE_CHECKING:
    from mcp_probe.export.exporters import TelemetrySettings
    from mcp_probe.launch.outside.target import Target
    from mcp_probe.report.page.window import Window

SOON_S = 3.0
"""If the script has not been run by then, we say that we wait for it."""
_WAKE_S = 1.0
_ANSWER_S = 60.0
_LEAVE_S = 15.0
_STOPPED_S = 0.05
_LAST_FRAMES_S = 1.0
_ENTRANCE = Path(__file__).with_name("entrance.py")
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_REFUSALS = {
    "visited": "another `mcp-probe attach` is in it. One at a time: end that one first",
    "run": "it was started by `mcp-probe run`, which reports when the server ends",
    "attached": "its own code has attached one (mcp_probe.attach). Ask that one: probe.snapshot()",
}


@dataclass(frozen=True, slots=True)
class Visited:
    """What a visit has to say: a report, or none where no request came; and sentences.

    ``failures`` are those of the sentences after which findings may be missing.
    """

    reports: tuple[Report, ...]
    sentences: tuple[str, ...]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for. ``seconds``: how long to stay; ``patience_s``: how long to wait at the door.

    ``relay``: where this process sends the telemetry of the server.
    """

    options: Mapping[str, Any]
    slow_step_ms: float = 10.0
    seconds: float | None = None
    patience_s: float | None = None
    wake: bool = False
    record: Path | None = None
    record_limit: int | None = None
    relay: TelemetrySettings | None = None
    window: Callable[[], Window] | None = None


def visit(
    target: Target, wish: Wish, *, tell: Callable[[str], None], prepare: Callable[[], None] = lambda: None
) -> Visited:
    """Bring the probe into ``target``, stay as long as ``wish`` says, and leave. Main thread only; blocks.

    Args:
        tell: called with a sentence when something has happened that the user waits for.
        prepare: as in ``run_command``.

    Raises: AttachError where the server cannot be entered, LaunchError where a file cannot be written, OptionError or
        MissingExtraError where telemetry cannot be set up; nothing has been injected then.
    """
    knock.check(target)
    relay = wish.relay if wish.relay is not None and _is_wanted(wish.relay) else None
    traced = {} if wish.relay is None else {"telemetry": "relay"}
    with ExitStack() as stack:
        recordings = None if wish.record is None else Recordings(wish.record, wish.record_limit)
        if recordings is not None:
            stack.callback(recordings.close)
        run = _folder(target)
        stack.callback(shutil.rmtree, run, ignore_errors=True)
        control, channel = inject.listen(run, "control"), inject.listen(run, "channel")
        stack.callback(control.close)
        _give(run, target)
        script = _script(run, target, {**wish.options, **traced, "slow_step_ms": wish.slow_step_ms})
        listening = ReceiverThread(channel, recordings, wish.slow_step_ms, relay, wish.window, prepare)
        try:
            ending = stack.enter_context(_endings())
            peer = _enter(target, wish, script, control, ending, tell)
            sentences = [] if peer is None else _stay(target, wish, peer, ending, tell)
        finally:
            listening.finish(_LAST_FRAMES_S)
        if peer is None:
            raise AttachError(_never_ran(target, wish))
        served = listening.served()
        late = [_late(process) for process in served if process.connected and not process.ended]
        failures = (*(_incomplete(process) for process in served if process.ends_early), *late)
        return Visited(tuple(map(_report, served)), (*sentences, *map(_incomplete, served), *late), failures)


def _is_wanted(relay: TelemetrySettings) -> bool:
    """Makes the exporters once, so that what is wrong shows before anything is injected."""
    from mcp_probe.export.telemetry import ready

    return ready(relay)


# ---- at the door ----


def _folder(target: Target) -> Path:
    try:
        return inject.make_private_folder()
    except OSError as exc:
        raise LaunchError(f"Cannot make a temporary folder ({exc}). Set TMPDIR to one that can be written to.") from exc


def _script(run: Path, target: Target, options: Mapping[str, Any]) -> Path:
    package = _PACKAGE
    if target.uid != os.geteuid():
        package = run / "mcp_probe"
        shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    script = run / "enter.py"
    call = f"_enter({str(run)!r}, {str(package)!r}, {__version__!r}, {dict(options)!r})"
    with opened(script) as stream:
        stream.write(f"{_ENTRANCE.read_text('utf-8')}\n\n{call}\n")
    _give(run, target)
    return script


def _give(run: Path, target: Target) -> None:
    """Root gives the folder to the server's user, whom nobody else may follow into it."""
    if os.geteuid() == target.uid:
        return
    for folder, _, files in os.walk(run):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, target.uid, -1, follow_symlinks=False)


def _enter(
    target: Target,
    wish: Wish,
    script: Path,
    control: socket.socket,
    ending: socket.socket,
    tell: Callable[[str], None],
) -> _Peer | None:
    """The server's end of the conversation, once it runs the script; ``None`` where we stopped waiting for that."""
    knock.knock(target, script)
    began = time.monotonic()
    told = woken = False
    with _watching(control, ending, target.pid) as ready:
        while True:
            waited_s = time.monotonic() - began
            left_s = 0.25 if wish.patience_s is None else min(0.25, wish.patience_s - waited_s)
            who = ready(left_s) if left_s > 0 else ("late",)
            if "control" in who:
                return _Peer(control.accept()[0])
            if "process" in who:
                raise AttachError(f"Process {target.pid} ended before it ran the probe.")
            if who:
                break
            if wish.wake and not woken and waited_s >= _WAKE_S:
                woken = _wake(target, tell)
            if not told and waited_s >= SOON_S:
                told = True
                tell(_waiting(target, wish))
    return _gone(target, control)


def _gone(target: Target, control: socket.socket) -> _Peer | None:
    """We wait no longer. If the script were run when its file is gone, the server would print an error."""
    knock.withdraw(target)
    control.settimeout(0.2)
    with suppress(OSError):  # it has begun in the meantime: it is told to leave at once
        peer, _ = control.accept()
        peer.close()
    return None


def _wake(target: Target, tell: Callable[[str], None]) -> bool:
    tell(f"process {target.pid} is stopped and continued (SIGSTOP, SIGCONT), to end its wait for events")
    with suppress(OSError):
        os.kill(target.pid, signal.SIGSTOP)
        time.sleep(_STOPPED_S)
        os.kill(target.pid, signal.SIGCONT)
    return True


def _waiting(target: Target, wish: Wish) -> str:
    hint = "" if wish.wake else "; --wake stops and continues the process, which ends a wait for events"
    stopped = " The process is stopped by a signal: `kill -CONT` lets it go on." if target.stopped else ""
    return (
        f"waiting for the server to run Python. A request to it does that{hint}. While its main thread blocks "
        f"(a sleep, a lock, a call into C) it cannot be entered. Ctrl-C gives up.{stopped}"
    )


def _never_ran(target: Target, wish: Wish) -> str:
    limit = "" if wish.patience_s is None else f" within {wish.patience_s:g} s"
    return (
        f"Process {target.pid} did not run Python on its main thread{limit}, so the probe did not get in, and nothing "
        "was recorded. The look from outside says what that thread does."
    )


# ---- inside ----


class _Peer:
    """The server's end of the conversation."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""

    def said(self, seconds: float) -> dict[str, Any] | None:
        """The next line; ``None`` where the connection or the time has ended."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self.connection.recv(65536)
            except OSError:
                chunk = b""
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def leave(self) -> dict[str, Any] | None:
        """Have the probe leave; what it says at last."""
        with suppress(OSError):
            self.connection.sendall(b"leave\n")
        return self.said(_LEAVE_S)


def _stay(target: Target, wish: Wish, peer: _Peer, ending: socket.socket, tell: Callable[[str], None]) -> list[str]:
    """Sentences for what was not as it should be. Raises: AttachError where there is nothing to attach to."""
    with peer.connection:
        names = _welcome(target, peer)
        many = "" if wish.seconds is None else f" for {wish.seconds:g} s"
        tell(f"attached to {', '.join(names)} (process {target.pid}){many}; Ctrl-C detaches and reports")
        with _watching(peer.connection, ending, target.pid) as ready:
            who = ready(wish.seconds)
        if "control" in who or "process" in who:
            return [f"Process {target.pid} has ended; the report holds what it recorded until then."]
        left = peer.leave()
    if left is None or "left" not in left:
        why = "" if left is None else f" ({left.get('failed', 'an unknown answer')})"
        return [f"Process {target.pid} has not said that the probe left{why}. It leaves as soon as it can."]
    return [str(sentence) for sentence in left["left"]]


def _welcome(target: Target, peer: _Peer) -> list[str]:
    said = peer.said(_ANSWER_S)
    if said is not None and "here" in said:
        said = peer.said(_ANSWER_S)
    if said is None:
        raise AttachError(f"Process {target.pid} ended, or did not answer, while the probe was brought into it.")
    if "attached" in said:
        return [str(name) for name in said["attached"]]
    refusal = str(said.get("refused", ""))
    if refusal in _REFUSALS:
        raise AttachError(f"Process {target.pid} has a probe already: {_REFUSALS[refusal]}.")
    if refusal == "no mcp":
        raise AttachError(f"Process {target.pid} has not imported the mcp package: it is no MCP server that we know.")
    if refusal == "idle":
        raise AttachError(f"Process {target.pid} has imported mcp and has no MCP server: a client, perhaps.")
    raise AttachError(f"The probe could not start in process {target.pid}: {said.get('failed', said)}.")


def _report(served: Served) -> Report:
    return Report(served.pid, served.summary, served.requests, served.window)


def _incomplete(served: Served) -> str:
    return "" if served.problem is None else f"The server: {served.problem}."


def _late(served: Served) -> str:
    """The server runs on, but has not said that this was all: it, or this command, was too busy."""
    return (
        f"Process {served.pid} did not send its last frames in time, so the report may lack the last second. Expected "
        "them when the probe left; visit it again."
    )


# ---- what wakes us ----


@contextmanager
def _endings() -> Iterator[socket.socket]:
    """A socket that can be read once this command is told to end."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in _ENDING}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        reader.close()
        writer.close()


@contextmanager
def _watching(
    control: socket.socket, ending: socket.socket, pid: int
) -> Iterator[Callable[[float | None], tuple[str, ...]]]:
    """A function that waits for something to happen, and says to whom: control, ending or process."""
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(control, selectors.EVENT_READ, "control")
        selector.register(ending, selectors.EVENT_READ, "ending")
        with suppress(OSError, AttributeError):  # an old kernel
            process = os.pidfd_open(pid)
            stack.callback(os.close, process)
            selector.register(process, selectors.EVENT_READ, "process")
        yield lambda seconds: tuple(key.data for key, _ in selector.select(seconds))
