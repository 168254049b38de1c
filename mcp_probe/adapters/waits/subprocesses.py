"""Other programs that a request starts and waits for: ``subprocess``, ``asyncio.subprocess``, and trio's processes.

Hooks are on the classes below ``subprocess.run`` and ``asyncio.create_subprocess_exec``, so that those may have been
imported by name. Of a program only its base name is kept: no argument, no folder; with ``shell=True`` it is the shell.

Source: subprocess.py, asyncio/subprocess.py, base_events.py, streams.py (3.10-3.15);
anyio/_backends/_asyncio.py (4.5-4.16); trio/_subprocess.py (0.30-0.35).
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.outbound import Call

UNKNOWN_PROGRAM = "a program"
MODULE = "subprocess"
MAX_NAME = 64
_SHELL = 8
"""Of the positional arguments of ``Popen``; ``executable`` is the third."""
_NEAR = 12
"""Frames between the making of a protocol and the function that asks for the process."""


class SubprocessHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (subprocess)"
    library = "Python"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._programs: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of processes, protocols and their readers
        self._starters: dict[CodeType, str] = {}

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        imports.when_imported("subprocess", self.guard.guarded(self._wrap_threads))
        imports.when_imported("asyncio.subprocess", self.guard.guarded(self._wrap_asyncio))
        imports.when_imported("anyio._backends._asyncio", self.guard.guarded(self._wrap_anyio))
        imports.when_imported("trio._subprocess", self.guard.guarded(self._wrap_trio))

    def _wrap_threads(self, module: Any) -> None:
        popen = module.Popen
        if not self.knows(popen, ("__init__", "wait", "communicate"), awaited=False):
            return
        self.guard.wrap(popen, "__init__", before=self._starts, after=self.over)
        for name in ("wait", "communicate"):
            self.guard.wrap(popen, name, before=self._waits, after=self.over)
        self._hub.working(self.hook)

    def _wrap_asyncio(self, module: Any) -> None:
        loop: Any = sys.modules["asyncio.base_events"].BaseEventLoop
        reader: Any = sys.modules["asyncio.streams"].StreamReader
        process, protocol = module.Process, module.SubprocessStreamProtocol
        if not (
            self.knows(loop, ("subprocess_exec", "subprocess_shell"), awaited=True)
            and self.knows(process, ("wait", "communicate"), awaited=True)
            and self.knows(protocol, ("__init__", "connection_made"))
            and self.knows(reader, ("_wait_for_data",), awaited=True)
        ):
            return
        for starter, argument in (("create_subprocess_exec", "program"), ("create_subprocess_shell", "cmd")):
            self._starters[getattr(module, starter).__code__] = argument
        self.guard.wrap(protocol, "__init__", before=self._note_protocol)
        self.guard.wrap(protocol, "connection_made", after=self._note_readers)
        self.guard.wrap(loop, "subprocess_exec", before=self._loop_starts, after=self.over)
        self.guard.wrap(loop, "subprocess_shell", before=self._loop_starts_shell, after=self.over)
        for name in ("wait", "communicate"):
            self.guard.wrap(process, name, before=self._awaits_process, after=self.over)
        self.guard.replace(reader, "_wait_for_data", self._reading)
        self._hub.working(self.hook)

    def _wrap_anyio(self, module: Any) -> None:
        if self.knows(module.AsyncIOBackend, ("open_process",)) and self.knows(module.Process, ("wait",), awaited=True):
            self._starters[module.AsyncIOBackend.open_process.__func__.__code__] = "command"
            self.guard.wrap(module.Process, "wait", before=self._awaits_anyio, after=self.over)

    def _wrap_trio(self, module: Any) -> None:
        if self.knows(module.Process, ("wait",), awaited=True):
            self.guard.wrap(module.Process, "wait", before=self._awaits_trio, after=self.over)
            self._hub.working(self.hook)

    def _starts(self, popen: Any, *args: Any, **kwargs: Any) -> Call | None:
        program = self._programs[popen] = program_of(args, kwargs)
        return self._begin(program, calls=1, library=MODULE)

    def _waits(self, popen: Any, *_: Any, **__: Any) -> Call | None:
        return None if popen.returncode is not None else self._begin(self._programs.get(popen), library=MODULE)

    def _loop_starts(self, loop: Any, protocol_factory: Any, program: Any = "", *_: Any, **kwargs: Any) -> Call | None:
        return self._begin(program_of(([program],), {"executable": kwargs.get("executable")}), calls=1)

    def _loop_starts_shell(self, loop: Any, *_: Any, **kwargs: Any) -> Call | None:
        return self._begin(program_of(("",), {"executable": kwargs.get("executable"), "shell": True}), calls=1)

    def _note_protocol(self, protocol: Any, *_: Any, **__: Any) -> None:
        """Whoever makes it stands on the stack: uvloop's own functions do not."""
        frame: Any = sys._getframe(1)
        for _depth in range(_NEAR):
            argument = None if frame is None else self._starters.get(frame.f_code)
            if argument is not None:
                seen = frame.f_locals
                given, more = seen.get(argument), seen.get("kwds") or seen.get("kwargs") or {}
                shell = argument == "cmd" or (argument == "command" and isinstance(given, (str, bytes)))
                self._programs[protocol] = program_of((given,), {"executable": more.get("executable"), "shell": shell})
                return
            frame = None if frame is None else frame.f_back

    def _note_readers(self, args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
        program = self._programs.get(args[0])
        for reader in (args[0].stdout, args[0].stderr):
            if program is not None and reader is not None:
                self._programs[reader] = program

    def _awaits_process(self, process: Any, *_: Any, **__: Any) -> Call | None:
        over = process.returncode is not None
        return None if over else self._begin(self._programs.get(process._protocol))

    def _awaits_anyio(self, process: Any) -> Call | None:
        return self._awaits_process(process._process)

    def _awaits_trio(self, process: Any) -> Call | None:
        return self._begin(self._programs.get(process._proc))

    def _reading(self, original: Any) -> Any:
        """Not a coroutine function: readers of sockets cost no frame of ours."""
        programs = self._programs
        followed = self.guard.around(original, before=self._reads, after=self.over)

        @wraps(original)
        def _wait_for_data(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (followed if programs and self in programs else original)(self, *args, **kwargs)

        return _wait_for_data

    def _reads(self, reader: Any, *_: Any, **__: Any) -> Call | None:
        return self._begin(self._programs.get(reader))

    def _begin(self, program: str | None, calls: int = 0, library: str | None = None) -> Call | None:
        if CURRENT.get() is None:
            return None
        name = program or UNKNOWN_PROGRAM
        call: Call | None = self._outbound.begin("subprocess", name, calls=calls, library=library)
        return call


def program_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The base name of the program that ``Popen(*args, **kwargs)`` runs. What may hold an argument is not looked at."""
    given = args[0] if args else kwargs.get("args")
    executable = args[2] if len(args) > 2 else kwargs.get("executable")
    shell = args[_SHELL] if len(args) > _SHELL else kwargs.get("shell")
    if executable is None:
        if shell:
            return "cmd.exe" if sys.platform == "win32" else "sh"
        executable = given[0] if isinstance(given, (list, tuple)) and given else given
    if not isinstance(executable, (str, bytes, os.PathLike)):
        return UNKNOWN_PROGRAM
    path = os.fsdecode(executable)
    name = os.path.basename(path)
    if not name or any(mark.isspace() for mark in path) or len(name) > MAX_NAME:
        return UNKNOWN_PROGRAM  # a whole command line
    return name
