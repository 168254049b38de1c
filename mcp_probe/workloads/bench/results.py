"""Results as JSON: written whole after each workload, read back for `mcp-probe compare` and for the docs page."""

from __future__ import annotations

import json
import os
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from mcp_probe.errors import RecordingError
from mcp_probe.record import private_file
from mcp_probe.workloads.bench.shapes import Results, Verdict

# 1: first version (2026-11). Keys may be added; readers ignore what they do not know. Two verdicts were renamed later.
FORMAT = "mcp_probe.bench/1"

_RENAMED = {"holds in shape": "in shape", "cannot be tested here": "cannot be told here"}

_ALWAYS = ("rows", "checks")
"""Of an outcome: they are written where there are none, too."""


def write_results(results: Results, path: Path) -> None:
    """Replaces ``path`` in one step, so that an interruption leaves the results before or after, never half of them."""
    partly = path.with_name(f"{path.name}.partly")
    values = {"format": FORMAT, **asdict(results)}
    private_file.write(partly, json.dumps(values, indent=1, allow_nan=False) + "\n")
    os.replace(partly, path)


def read_results(path: Path) -> Results:
    """What :func:`write_results` wrote.

    Raises: RecordingError where there is no such file, or something else in it.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise RecordingError(f"Cannot read {path}: {exc.strerror}.") from exc
    except ValueError as exc:
        raise RecordingError(f"{path} is not JSON; expected what `mcp-probe bench --json` writes.") from exc
    found = values.get("format") if isinstance(values, dict) else None
    if found != FORMAT:
        raise RecordingError(
            f"{path} says format {found!r}; expected {FORMAT!r}, as `mcp-probe bench --json` of this version writes it."
        )
    try:
        results: Results = _made(Results, values)
    except (KeyError, TypeError) as exc:
        raise RecordingError(f"{path} is damaged: {type(exc).__name__}: {exc}.") from exc
    return results


@cache
def _types(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _made(cls: Any, values: Any) -> Any:
    """An instance from those of ``values`` that it knows."""
    types = _types(cls)
    return cls(
        **{
            each.name: _value(types[each.name], values[each.name])
            for each in fields(cls)
            if each.name in values or each.default is MISSING or each.name in _ALWAYS
        }
    )


def _value(declared: Any, value: Any) -> Any:
    """What a field of the ``declared`` type holds, from what JSON has for it."""
    kinds = get_args(declared)
    if get_origin(declared) is tuple:
        return tuple(_value(kinds[0], each) for each in value)
    if declared == Verdict:
        return _RENAMED.get(value, value)
    cls = next(filter(is_dataclass, kinds or (declared,)), None)
    is_plain = (value is None and NoneType in kinds) or (isinstance(value, (int, float)) and float in kinds)
    return value if cls is None or is_plain else _made(cls, value)
