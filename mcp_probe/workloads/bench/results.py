"""Results as JSON: written whole after each workload, read back for `mcp-probe compare` and for the docs page."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from mcp_probe.errors import RecordingError
from mcp_probe.record import private_file
from mcp_probe.workloads.bench.shapes import (
    Asked,
    Check,
    Little,
    Measured,
    Outcome,
    Part,
    Result,
    Results,
    Row,
    Stats,
)

# 1: first version (2026-11). Keys may be added; readers ignore what they do not know. Two verdicts were renamed later.
FORMAT = "mcp_probe.bench/1"

_RENAMED = {"holds in shape": "in shape", "cannot be tested here": "cannot be told here"}

T = TypeVar("T")


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
        return _results(values)
    except (KeyError, TypeError, AttributeError) as exc:
        raise RecordingError(f"{path} is damaged: {type(exc).__name__}: {exc}.") from exc


def _results(values: dict[str, Any]) -> Results:
    return Results(values["machine"], values["size"], tuple(_result(each) for each in values["results"]))


def _result(values: dict[str, Any]) -> Result:
    outcome = values["outcome"]
    return _made(
        Result,
        values,
        documents=tuple(values["documents"]),
        outcome=_made(
            Outcome,
            outcome,
            rows=tuple(_row(row) for row in outcome["rows"]),
            checks=tuple(_check(check) for check in outcome["checks"]),
            notes=tuple(outcome.get("notes", ())),
            missing=tuple(outcome.get("missing", ())),
        ),
    )


def _check(values: dict[str, Any]) -> Check:
    verdict = _RENAMED.get(values["verdict"], values["verdict"])
    return _made(Check, values, verdict=verdict, parts=tuple(_part(part) for part in values.get("parts", ())))


def _part(values: dict[str, Any]) -> Part:
    asked = values["asked"]
    return Part(_made(Asked, asked, documented=tuple(asked.get("documented", ()))), _made(Measured, values["measured"]))


def _row(values: dict[str, Any]) -> Row:
    measured, little = values["measured"], values.get("little")
    return _made(
        Row,
        values,
        measured=_made(Stats, measured) if isinstance(measured, dict) else measured,
        little=None if little is None else _made(Little, little),
    )


def _made(cls: type[T], values: dict[str, Any], **instead: Any) -> T:
    """An instance from those of ``values`` that it knows."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{**{name: value for name, value in values.items() if name in known}, **instead})
