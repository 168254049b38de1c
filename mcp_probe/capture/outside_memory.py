"""Who allocates outside Python's allocators, so that no figure of a call is more than a lower bound.

That is known of some libraries by their names, and of the server's own modules by their source: what they take by
``ctypes``, ``cffi`` or ``mmap`` Python is not asked for. Other packages are not read: nearly every process has one that
could, and never does.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from mcp_probe.capture.places import is_users

LIBRARIES = ("numpy", "pandas", "polars", "pyarrow", "torch", "tensorflow", "cv2", "PIL", "lxml", "duckdb")
"""Libraries whose data the allocators of Python do not see, or not all of it. numpy asks them from 2.5 on."""

WAYS = ("ctypes", "cffi", "mmap")
"""What a server's own code can take memory by. Few processes have loaded any of them, so that nothing is read."""

_IMPORTS = re.compile(rf"^[ \t]*(?:import|from)[ \t]+({'|'.join(WAYS)})\b".encode(), re.MULTILINE)
_LONGEST_SOURCE = 1_000_000


class OutsideMemory:
    """Reads each of the server's own modules once. One thread calls it: it opens files."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._found = ""

    def found(self) -> str:
        """A sentence's subject: ``pandas``, or ``ctypes (in tools.py)``; empty as long as nobody does."""
        self._found = self._found or _library() or self._own_module()
        return self._found

    def _own_module(self) -> str:
        if not any(way in sys.modules for way in WAYS):
            return ""
        for name, module in sys.modules.copy().items():
            if name in self._read:
                continue
            self._read.add(name)
            if used := _imported_by(module):
                return f"{used} (in {name})"
        return ""


def _library() -> str:
    """The first library that is loaded and allocates outside Python's allocators."""
    for name in LIBRARIES:
        module = sys.modules.get(name)
        if module is not None and not (name == "numpy" and _version_of(module) >= (2, 5)):
            return name
    return ""


def _imported_by(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or not is_users(file):
        return ""
    try:
        with open(file, "rb") as source:
            found = _IMPORTS.search(source.read(_LONGEST_SOURCE))
    except OSError:
        return ""
    return "" if found is None else found[1].decode()


def _version_of(module: Any) -> tuple[int, ...]:
    parts = str(getattr(module, "__version__", "")).split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())
