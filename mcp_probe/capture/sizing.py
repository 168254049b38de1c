"""Sizes of the object graphs that come in as arguments and go out as results: by pympler, sampled and capped.

Runs on the loop, since the objects may change later: at most one sample of an operation and kind a second, graphs of
at most :data:`MOST_OBJECTS`, and no more than one part in :data:`SHARE` of the loop's time. A graph that is over
the cap, or was not sampled, has no size.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

MOST_OBJECTS = 5_000
"""Pympler takes about 2 us an object: 10 ms, which is where a step counts as slow."""

SHARE = 100
EVERY_NS = 1_000_000_000
MAX_OPERATIONS = 200
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Objects of a class refer to these, but they are not part of what was sent."""


class Sizer:
    """Sizes arguments and results on the loop's thread. ``fail`` is told of a fault, which ends it.

    ``charge`` charges this thread's allocations to another owner and returns the previous one: memory that sizing needs
    is not the request's.

    Raises: ImportError where ``size_of`` is not given and pympler is not installed.
    """

    def __init__(
        self,
        fail: Callable[[Exception], None] = lambda exc: None,
        *,
        charge: Callable[[Any], Any] = lambda whom: None,
        clock: Callable[[], int] = now_ns,
        size_of: Callable[[Any], int] | None = None,
    ) -> None:
        if size_of is None:
            from pympler.asizeof import asizeof

            size_of = asizeof
        self._fail = fail
        self._charge = charge
        self._clock = clock
        self._size_of = size_of
        self._due: dict[tuple[str, str], int] = {}  # (kind, operation) -> when it may be sampled again
        self._rest_until = 0
        self.off = False
        self.over_cap = 0

    def arguments(self, raw: RawRequest, message: Any) -> None:
        """``message`` is the request ``raw``. Never raises."""
        self._offer("arguments", raw, getattr(message, "params", None))

    def result(self, raw: RawRequest, message: Any) -> None:
        """``message`` answers ``raw``. Never raises."""
        self._offer("result", raw, getattr(message, "result", None))

    def _offer(self, kind: str, raw: RawRequest, value: Any) -> None:
        if self.off or value is None:
            return
        before = self._charge(None)
        try:
            size = self._sample((kind, raw.operation), value)
        except Exception as exc:  # noqa: BLE001 - a fault of ours, or an object that cannot be looked at
            self.off = True
            self._fail(exc)
            return
        finally:
            self._charge(before)
        if size is not None:
            arguments, result = raw.sized or (None, None)
            raw.sized = (size, result) if kind == "arguments" else (arguments, size)

    def _sample(self, key: tuple[str, str], value: Any) -> int | None:
        now = self._clock()
        if now < self._rest_until or now < self._due.get(key, 0):
            return None
        if key not in self._due and len(self._due) >= MAX_OPERATIONS:
            return None
        self._due[key] = now + EVERY_NS
        if is_large(value):
            self.over_cap += 1
            size = None
        else:
            size = self._size_of(value)
        ended = self._clock()
        self._rest_until = ended + SHARE * (ended - now)
        return size


def is_large(value: Any, most: int = MOST_OBJECTS) -> bool:
    """Whether ``value`` reaches more than ``most`` objects, or as many references; looks at few more than that."""
    seen: dict[int, Any] = {}
    ahead = [value]
    while ahead:
        found = ahead.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen[id(found)] = found
        ahead.extend(gc.get_referents(found))
        if len(seen) > most or len(ahead) > 4 * most:
            return True
    return False
