"""A comparison as JSON. The keys of ``mcp_probe.comparison/1`` stay; more may be added."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from typing import Any, TextIO

from mcp_probe.compare.regression import Checked
from mcp_probe.compare.shapes import Comparison, Difference

FORMAT = "mcp_probe.comparison/1"


def write(comparison: Comparison, checked: Checked | None, stream: TextIO) -> None:
    """Writes it indented, with a newline at its end. ``checked`` is ``None`` without --max-regression."""
    values = {"format": FORMAT, **asdict(comparison), "rows": [_row(row) for row in comparison.rows]}
    values["max_regression"] = None if checked is None else {**asdict(checked), "passes": checked.passes}
    stream.write(json.dumps(values, indent=1, allow_nan=False) + "\n")


def _row(row: Difference) -> dict[str, Any]:
    operation, measure, about = row.key
    values: dict[str, Any] = {"operation": operation, "measure": measure, "about": about}
    for name in ("unit", "is_part", "before", "after", "change", "low", "high", "visible", "chance", "judgement"):
        value = getattr(row, name)
        values[name] = None if isinstance(value, float) and not isfinite(value) else value
    return values
