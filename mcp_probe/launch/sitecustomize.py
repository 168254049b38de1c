"""Loads mcp_probe into a Python that `mcp-probe run` started, then hands over to the sitecustomize it hides.

A copy of this file stands first on the command's PYTHONPATH, so every Python below the command reads it,
2.7 included: standard library only, no syntax newer than 2.7, and nothing here may raise into the program.
When it is done, ``sys.path`` is what it would be without us; mcp_probe stays importable because the package
is loaded by then and finds its modules through its own ``__path__``.
"""

import os
import sys

OLDEST_PYTHON = (3, 10)


def note(run, kind, detail=""):
    # type: (str, str, str) -> None
    """Appends one line to the parent's list of processes; silent where the parent and its folder are gone."""
    python = "%d.%d.%d" % sys.version_info[:3]  # noqa: UP031
    words = [kind, str(os.getpid()), python, sys.executable or "?", detail]
    line = "\t".join(" ".join(word.split()) for word in words) + "\n"
    try:
        # One write to a file opened for appending is whole, however many processes write at once.
        fd = os.open(os.path.join(run, "processes"), os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, line if isinstance(line, bytes) else line.encode("utf-8", "replace"))
        finally:
            os.close(fd)
    except OSError:
        pass


def enter():
    # type: () -> None
    """Starts the probe of the run this file was made for."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    run = os.environ.get("MCP_PROBE_RUN", "")
    if os.path.dirname(folder) != run:
        return  # a run inside a run: only the inner one profiles
    if sys.version_info < OLDEST_PYTHON:
        note(run, "old")
        if os.environ.get("MCP_PROBE_DOCTOR"):
            os._exit(0)
        return
    note(run, "python")
    sys.path.insert(0, folder)
    try:
        from mcp_probe.launch import child

        child.start(run, note)
    except Exception as exc:  # noqa: BLE001 - the program must start all the same
        note(run, "failed", "%s: %s" % (type(exc).__name__, exc))  # noqa: UP031
    finally:
        sys.path.remove(folder)


def hand_over():
    # type: () -> None
    """Imports the sitecustomize that this one hides, in its place; its own errors are the interpreter's to report."""
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as exc:
        if getattr(exc, "name", __name__) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


if __name__ == "sitecustomize":
    enter()
    hand_over()
