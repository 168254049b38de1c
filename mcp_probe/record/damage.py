"""Which value of a recording is none that mcp_probe writes: asked where what was read could not be understood.

Reading takes values as they come, which is fast, so a damaged one shows only where somebody computes with it, far from
its line. :func:`first_fault` reads again, slowly, and holds each value against the type and the range of its field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mcp_probe import histogram
from mcp_probe.errors import RecordingError
from mcp_probe.model import Frame
from mcp_probe.record.file import LineDecoder, read_recording
from mcp_probe.record.parts import files_of

Judge = Callable[[Any], str]
"""Of a value: what it is, and what was expected; empty where it may be."""

_MOST = 2**63
_BUCKETED = frozenset({"durations", "longest", "iterations", "wait", "transport_waits"})
_SHOWN = 40


def first_fault(paths: Iterable[Path]) -> str:
    """A sentence on the first value in ``paths`` that no recording of ours has; empty if there is none.

    Files that are no recordings are passed over.
    """
    for file in (file for path in paths for file in files_of(path)):
        try:
            with file.open("rb") as stream:
                LineDecoder().feed(stream.readline())
        except (RecordingError, OSError):
            continue
        try:
            for _ in read_recording(file, check=fault_of):
                pass
        except RecordingError as exc:
            return str(exc)
    return ""


def fault_of(frame: Frame) -> str:
    """Which value of ``frame`` is none, as "`steps` is 'x'; expected a whole number"; empty where all may be."""
    kind: Any = type(frame)
    return _judge_of(kind)(frame)


@cache
def _judge_of(kind: Any) -> Judge:
    """What judges values of the type ``kind``, as a field is annotated with it."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_shape(kind, [field.name for field in fields(kind)])
    if hasattr(kind, "_fields"):
        return _of_shape(kind, list(kind._fields))
    if origin is Literal:
        return lambda value: "" if value in inner else _odd(value, f"one of {', '.join(map(str, inner))}")
    if origin in (Union, UnionType):
        judges = [_judge_of(one) for one in inner if one is not type(None)]
        return lambda value: "" if value is None else min((judge(value) for judge in judges), key=len)
    if origin is tuple:
        return _of_many(inner[0]) if inner[-1] is ... else _of_row(inner)
    return {int: _of_whole, float: _of_number, bool: _of_bool, str: _of_text}[kind]


def _of_shape(kind: Any, names: list[str]) -> Judge:
    hints = get_type_hints(kind)
    judges = [(name, _of_buckets if name in _BUCKETED else _judge_of(hints[name])) for name in names]

    def judge(value: Any) -> str:
        if type(value) is not kind:
            return _odd(value, f"the fields of a {kind.__name__}")
        for name, of_field in judges:
            fault = of_field(getattr(value, name))
            if fault:
                return fault if fault.startswith("`") else f"`{name}` is {fault}"
        return ""

    return judge


def _of_many(kind: Any) -> Judge:
    one = _judge_of(kind)
    return lambda value: next(filter(None, map(one, value)), "") if type(value) is tuple else _odd(value, "a list")


def _of_row(kinds: tuple[Any, ...]) -> Judge:
    judges = [_judge_of(kind) for kind in kinds]

    def judge(value: Any) -> str:
        if type(value) is not tuple or len(value) != len(judges):
            return _odd(value, f"a list of {len(judges)} values")
        return next(filter(None, (of(each) for of, each in zip(judges, value, strict=True))), "")

    return judge


def _of_buckets(value: Any) -> str:
    fault = _judge_of(tuple[tuple[int, int, int], ...])(value)
    if fault:
        return fault
    odd = next((row for row in value if not 0 <= row[0] <= histogram.LAST_BUCKET or row[1] < 0), None)
    return "" if odd is None else _odd(odd, f"a bucket from 0 to {histogram.LAST_BUCKET}, and a count")


def _of_whole(value: Any) -> str:
    if type(value) is not int:
        return _odd(value, "a whole number")
    return "" if -_MOST < value < _MOST else _odd(value, "a number of 64 bits")


def _of_number(value: Any) -> str:
    fine = type(value) in (int, float) and abs(value) < _MOST and math.isfinite(value)
    return "" if fine else _odd(value, "a number")


def _of_bool(value: Any) -> str:
    return "" if type(value) is bool else _odd(value, "true or false")


def _of_text(value: Any) -> str:
    return "" if type(value) is str else _odd(value, "a text")


def _odd(value: Any, expected: str) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return f"{shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}; expected {expected}"
