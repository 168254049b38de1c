"""Who makes an object that requests may await: at which line of the user's code, or some library for itself.

The SDK makes a dozen events for each call, all for itself: what is known of a function is asked for once.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from mcp_probe.capture.places import is_own, is_plumbing
from mcp_probe.model import AwaitKind

MAX_FUNCTIONS = 16_384
"""Functions that are remembered for one class."""

_MAKING = frozenset({
    "__init__", "__new__", "create_lock", "create_semaphore", "create_capacity_limiter", "create_event",
    "create_memory_object_stream",
})  # fmt: skip

_BACKEND = frozenset({"create_lock", "create_semaphore", "create_capacity_limiter", "create_event"})
"""anyio's own classes hand out what these make, and Python initialises it once more for whoever calls the class."""

_HELD = ("lock", "semaphore", "limiter")
"""Kinds of which one of anyio's may be another library's own, which is then the one that is awaited."""

_PASSES_ON, _LIBRARYS, _USERS = range(3)


class Makers:
    """Of one class, which reports call ``label``.

    Attributes:
        nameless: functions of libraries, by ``id``, whose objects have no line. CPython hashes a code object anew each
            time, with all of its constants: 0.2 to 0.8 us.
    """

    def __init__(self, kind: AwaitKind, label: str) -> None:
        self.nameless: dict[int, CodeType] = {}
        library = label.partition(".")[0]
        self._between = (library, "typing", "anyio") if kind in _HELD else (library, "typing")
        self._known: dict[int, tuple[CodeType, int]] = {}  # a code object's id, and what is known of it

    def line_of(self, frame: Any) -> str | None:
        """``file:line`` of who makes an object whose ``__init__`` is called from ``frame``.

        ``None`` if that is plumbing: what libraries make for themselves has no name.
        """
        maker = frame.f_code
        if maker.co_name in _BACKEND and _root_of(frame) == "anyio":
            self._needs_no_name(maker)
            return None
        known = self._known
        while True:
            code = frame.f_code
            found = known.get(id(code))
            what = self._look(frame) if found is None else found[1]
            if what != _PASSES_ON or frame.f_back is None:
                break
            frame = frame.f_back
        if what == _USERS:
            return f"{code.co_filename}:{frame.f_lineno}"
        if what == _LIBRARYS and code is maker:
            self._needs_no_name(maker)
        return None

    def _look(self, frame: Any) -> int:
        code = frame.f_code
        if is_own(code.co_filename) or self._makes(frame):
            what = _PASSES_ON
        else:
            what = _LIBRARYS if is_plumbing(code.co_filename) else _USERS
        if len(self._known) < MAX_FUNCTIONS:
            self._known[id(code)] = code, what
        return what

    def _makes(self, frame: Any) -> bool:
        """Whether it only passes on that one is made: of a subclass, of a backend of anyio, of a generic class."""
        root = _root_of(frame)
        return root == "typing" or (root in self._between and frame.f_code.co_name in _MAKING)

    def _needs_no_name(self, code: CodeType) -> None:
        if len(self.nameless) < MAX_FUNCTIONS:
            self.nameless[id(code)] = code


def _root_of(frame: Any) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
