"""A place in code, as short as a reader can still find it."""

from __future__ import annotations

import os
import re

_LIBRARY = re.compile(r"(?<![^/])(?:site-packages|dist-packages|lib/python3(?:\.\d+)?t?)/")
_TAIL_PARTS = 3  # of a path that is under nothing we know


def short_path(path: str, cwd: str) -> str:
    """``path`` below ``cwd`` or below the innermost library folder; else its last parts after ``…/``.

    Takes either kind of slash: a recording may come from another system. Never touches the disk.
    """
    path = path.replace("\\", "/")
    below = cwd.replace("\\", "/").rstrip("/") + "/"
    # A virtual environment usually stands inside the working directory, so the library folder comes first.
    libraries = list(_LIBRARY.finditer(path))
    if libraries:
        return path[libraries[-1].end() :]
    if path.startswith(below):
        return path[len(below) :]
    parts = path.split("/")
    return path if len(parts) <= _TAIL_PARTS + 1 else "…/" + "/".join(parts[-_TAIL_PARTS:])


def place(file: str | None, line: int | None, cwd: str) -> str | None:
    """``file:line``; ``None`` where the file is not known."""
    if not file:
        return None
    return short_path(file, cwd) + (f":{line}" if line is not None else "")


def working_directory() -> str:
    """Where this process is; ``/`` if that folder has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return "/"
