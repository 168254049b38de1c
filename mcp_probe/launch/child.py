"""What runs inside each Python below the command: waits for an import of ``mcp``, and attaches then.

Most of these processes never serve MCP (pip, a wrapper, a node shim's helper), so until ``mcp`` is imported
nothing is loaded but this module, nothing connects and no thread exists. Nothing here raises into the program.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # importing typing would double what this module costs every Python below the command
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    Note = Callable[[str, str, str], None]


def start(run: str, note: Note) -> None:
    """Arms the probe in this process. ``run`` is the parent's folder.

    ``note(run, kind, detail)`` adds this process to the parent's list. With MCP_PROBE_DOCTOR set it diagnoses
    instead, and the process ends here.
    """
    # The run's folder may be gone when a module is first needed, and its name says nothing in a traceback.
    for name in ("mcp_probe", "mcp_probe.launch"):
        package = sys.modules[name]
        package.__path__ = [os.path.realpath(path) for path in package.__path__]
    if os.environ.get("MCP_PROBE_DOCTOR"):
        _diagnose(run, note)
    _stay_first_on_pythonpath(os.path.join(run, "inject"))
    if "mcp" in sys.modules:
        attach(run, note)
    else:
        sys.meta_path.insert(0, ImportTrigger("mcp", lambda: attach(run, note)))


def attach(run: str, note: Note) -> None:
    """Attaches to every MCP server this process will create; their frames go to the parent."""
    try:
        note(run, "mcp", "")
        _note_uncaught(run, note)
        from mcp_probe.launch.channel import ChannelSink
        from mcp_probe.launch.lifeline import end_with_parent
        from mcp_probe.session import attach_everywhere

        # Options come through the environment, as they do for ``attach``.
        channel = os.path.join(run, "channel")
        attach_everywhere(ChannelSink(channel, on_first_write=lambda: end_with_parent(run)))
    except Exception as exc:  # noqa: BLE001 - the server must start all the same
        note(run, "failed", f"{type(exc).__name__}: {exc}")


class ImportTrigger:
    """Meta path finder that finds nothing of its own; calls ``action`` once, when ``module`` has been imported.

    It leaves no trace on the module: the loader it borrows gets its own ``exec_module`` back before the body runs.
    Being asked is not yet an import: ``importlib.util.find_spec`` asks and throws the answer away (fastmcp 4 does).
    """

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self._module = module
        self._action = action

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name != self._module or self not in sys.meta_path:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        for finder in others:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._act_after(spec.loader)
                return spec
        return None

    def _act_after(self, loader: Any) -> None:
        run_body = getattr(loader, "exec_module", None)
        if run_body is None:
            return self._fire()

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            run_body(module)
            self._fire()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            self._fire()
        return None

    def _fire(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._action()


def _note_uncaught(run: str, note: Note) -> None:
    """Tells the parent of an exception that ends the program: its type, and where. Its message may hold a secret."""
    real_excepthook = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        try:
            exc = value
            while len(getattr(exc, "exceptions", ())) == 1:  # a group of one, as task groups make
                exc = exc.exceptions[0]
            frame = exc.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            where = "" if frame is None else f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
            error = f":{errno.errorcode.get(exc.errno, '')}" if isinstance(exc, OSError) and exc.errno else ""
            if not isinstance(exc, KeyboardInterrupt):
                note(run, "exception", f"{type(exc).__name__}{error} {where}")
        except Exception as fault:  # noqa: BLE001 - the program's own end must not change
            note(run, "failed", f"{type(fault).__name__}: {fault}")
        real_excepthook(kind, value, traceback)

    sys.excepthook = excepthook


def _stay_first_on_pythonpath(folder: str) -> None:
    """Wrappers that put a sitecustomize of their own first and then exec (opentelemetry-instrument) would hide ours.

    ``execl``, ``execlp`` and ``execvp`` all end in ``os.execv``; a caller that passes an environment gets exactly that.
    """
    real_execv = os.execv

    def execv(path: Any, args: Any) -> None:
        rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != folder]
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *rest])
        real_execv(path, args)

    os.execv = execv  # type: ignore[assignment]


def _diagnose(run: str, note: Note) -> None:
    """Writes which hooks would be active in this interpreter, and ends the process before the program starts."""
    try:
        import json

        from mcp_probe.launch.sight import look

        note(run, "doctor", json.dumps(look().to_json()))
    except BaseException as exc:  # noqa: BLE001 - whatever it was, the program must not start
        note(run, "failed", f"{type(exc).__name__}: {exc}")
    finally:
        os._exit(0)
