"""Which process is this, and may we look at it? Everything here is read from /proc; nothing is run."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mcp_probe.errors import AttachError

PROC = Path("/proc")

_NAMED = re.compile(r"^python(?:(\d)\.(\d+))?(t?)d?$")
_LIBRARY = re.compile(r"/libpython(\d)\.(\d+)(t?)d?\.so")
_EXTENSION = re.compile(r"\.cpython-(\d)(\d+)(t?)d?-[\w-]*\.so$|/python(\d)\.(\d+)(t?)/lib-dynload/")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Target:
    """A live Python process that this user may look at. ``unaskable``: why its interpreter cannot be run, or empty."""

    pid: int
    uid: int
    command: tuple[str, ...]
    executable: str
    version: tuple[int, int]
    folder: str | None
    stopped: bool
    unaskable: str

    @property
    def python(self) -> str:
        """``3.14``."""
        return "{}.{}".format(*self.version)

    @property
    def interpreter(self) -> str:
        """What runs the interpreter of the process, even if its file was replaced meanwhile."""
        return f"/proc/{self.pid}/exe"


def find(pid: int, *, proc: Path = PROC) -> Target:
    """The process ``pid``. Raises: AttachError with the reason why it cannot be looked at."""
    if not proc.is_dir():
        raise AttachError(
            f"`mcp-probe attach` reads /proc, which only Linux has; this is {sys.platform}. "
            "Start the server under the probe instead: mcp-probe run -- COMMAND"
        )
    own = proc / str(pid)
    status = _status(own)
    if status is None:
        raise AttachError(f"There is no process {pid}. `pgrep -af python` lists those that run.")
    if status.get("Tgid", str(pid)) != str(pid):
        raise AttachError(f"{pid} is a thread of process {status['Tgid']}. Attach to that: {_again(status['Tgid'])}")
    if status.get("State", "").startswith(("Z", "X")):
        raise AttachError(
            f"Process {pid} has ended (a zombie): its parent, process {status.get('PPid', '?')}, has not asked how. "
            "There is nothing to look at any more."
        )
    if pid == os.getpid():
        raise AttachError(f"Process {pid} is this command itself. Name the server's process.")
    command = _command(own)
    uid = _number(status.get("Uid", ""), os.getuid())
    executable = _executable(own, pid, uid, command, proc)
    version = _version(own, executable)
    if version is None:
        raise AttachError(_not_python(pid, executable, proc))
    if version < (3, 10):
        raise AttachError(
            f"Process {pid} runs Python {version[0]}.{version[1]}. MCP servers need 3.10 or newer: is it the right one?"
        )
    return Target(
        pid=pid,
        uid=uid,
        command=command,
        executable=executable.removesuffix(_DELETED),
        version=version,
        folder=_link(own / "cwd"),
        stopped=status.get("State", "").startswith(("T", "t")),
        unaskable=_why_unaskable(own, executable, version, proc),
    )


def shown(command: tuple[str, ...], limit: int = 160) -> str:
    """A command line as a shell would take it."""
    line = shlex.join(command)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def permission_advice(target: Target, proc: Path = PROC) -> str:
    """What keeps this user from reading the memory of ``target``, as far as the system tells, and what to do."""
    if os.geteuid() not in (0, target.uid):
        return (
            f"It belongs to user {_user(target.uid)}. Run this as that user, or as root: {_again(target.pid, 'sudo ')}"
        )
    scope = _number(_text(proc / "sys/kernel/yama/ptrace_scope"), 0)
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3: nobody may look into a process until the system is booted with less."
    if scope and os.geteuid() != 0:
        return (
            f"kernel.yama.ptrace_scope is {scope}: only root may look into a process that it did not start. Use "
            f"{_again(target.pid, 'sudo ')} or, until the next boot, "
            "echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope"
        )
    return (
        "This user lacks the ptrace right on it. In a container add --cap-add=SYS_PTRACE; a process that changed its "
        "user or is marked as not dumpable needs root."
    )


# ---- one file of /proc each ----


def _status(own: Path) -> dict[str, str] | None:
    text = _text(own / "status")
    if not text:
        return None
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _command(own: Path) -> tuple[str, ...]:
    return tuple(part for part in _text(own / "cmdline").split("\0") if part)


def _executable(own: Path, pid: int, uid: int, command: tuple[str, ...], proc: Path) -> str:
    try:
        return os.readlink(own / "exe")
    except PermissionError:
        named = Target(pid, uid, command, "", (0, 0), None, False, "")
        raise AttachError(f"Process {pid} may not be looked at. {permission_advice(named, proc)}") from None
    except OSError:
        if not command:
            raise AttachError(f"Process {pid} is a thread of the kernel, and no Python server.") from None
        raise AttachError(f"There is no process {pid} any more.") from None


def _version(own: Path, executable: str) -> tuple[int, int] | None:
    """By the interpreter's name, else by what is mapped into it; ``None`` where nothing of Python is."""
    name = _NAMED.match(os.path.basename(executable.removesuffix(_DELETED)))
    if name and name[1]:
        return int(name[1]), int(name[2])
    for line in _text(own / "maps").splitlines():
        for pattern in (_LIBRARY, _EXTENSION):
            found = pattern.search(line)
            if found:
                major, minor = [part for part in found.groups() if part and part.isdigit()][:2]
                return int(major), int(minor)
    return None


def _why_unaskable(own: Path, executable: str, version: tuple[int, int], proc: Path) -> str:
    theirs, ours = _link(own / "ns/mnt"), _link(proc / "self/ns/mnt")
    if theirs is not None and ours is not None and theirs != ours:
        return (
            f"process {own.name} runs in another container, whose files are not those here; "
            "run `mcp-probe attach` inside that container"
        )
    if not _NAMED.match(os.path.basename(executable.removesuffix(_DELETED))):
        return f"its Python {version[0]}.{version[1]} is built into {executable}, which is no interpreter to ask"
    return ""


def _not_python(pid: int, executable: str, proc: Path) -> str:
    """Launchers such as `uv run` and shells stand before the server: their children may be what is meant."""
    below = [child for child in _descendants(pid, proc) if _is_python(child, proc)]
    found = f"Process {pid} runs {executable.removesuffix(_DELETED)}, which is not Python."
    if len(below) == 1:
        return f"{found} It has started one that is: {_again(below[0])}"
    if below:
        return f"{found} It has started {len(below)} that are: {', '.join(map(str, below[:8]))}. Attach to one of them."
    return f"{found} Expected the process of a Python MCP server."


def _is_python(pid: int, proc: Path) -> bool:
    own = proc / str(pid)
    return _version(own, _link(own / "exe") or "") is not None


def _descendants(pid: int, proc: Path) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < 256:
        parent = waiting.pop()
        with suppress(OSError):
            for thread in (proc / str(parent) / "task").iterdir():
                children = [int(word) for word in _text(thread / "children").split()]
                found += children
                waiting += children
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _number(text: str, otherwise: int) -> int:
    words = text.split()
    return int(words[0]) if words and words[0].isdigit() else otherwise


def _user(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def _again(pid: int | str, before: str = "") -> str:
    return f"{before}mcp-probe attach {pid}"
