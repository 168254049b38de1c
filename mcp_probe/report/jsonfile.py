"""The summary as a JSON file, for scripts and for CI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any, TextIO

from mcp_probe.errors import ProbeError
from mcp_probe.model import Summary


def write(summary: Summary, stream: TextIO) -> None:
    """Writes ``summary.to_json()`` as indented ASCII JSON with a newline at its end; all of it or nothing.

    Raises:
        ProbeError: a number is NaN or infinite. JSON has neither; unknown must be ``None`` in a summary.
    """
    values = summary.to_json()
    broken = ", ".join(_not_finite(values, ""))
    if broken:
        raise ProbeError(
            f"The summary holds numbers that JSON cannot hold: {broken}. "
            "A number that is not known must be None; please report this as a bug of mcp_probe."
        )
    stream.write(json.dumps(values, indent=2, allow_nan=False) + "\n")


def _not_finite(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _not_finite(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _not_finite(each, f"{path}[{index}]")
    elif isinstance(value, float) and not isfinite(value):
        yield f"{path} = {value}"
