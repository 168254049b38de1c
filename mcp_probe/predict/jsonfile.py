"""An answer as JSON. The keys of ``mcp_probe.prediction/1`` stay; more may be added."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, TextIO

from mcp_probe.predict.outcome import Result
from mcp_probe.predict.what_if import Answer

FORMAT = "mcp_probe.prediction/1"


def write(answer: Answer, stream: TextIO) -> None:
    """Writes it indented, with a newline at its end."""
    workload = answer.window.workload
    values = {
        "format": FORMAT,
        "changes": [{**asdict(change), "option": str(change)} for change in answer.changes],
        "arrivals": {"closed": workload.is_closed, "sentence": workload.arrivals},
        "check": [{**asdict(one), "error": one.error} for one in answer.window.checks],
        "now": _result(answer.before),
        "then": _result(answer.after),
    }
    stream.write(json.dumps(values, indent=1, allow_nan=False) + "\n")


def _result(result: Result) -> dict[str, Any]:
    return {
        "calls_per_second": result.per_second,
        "operations": [{"name": name, **asdict(figures)} for name, figures in result.operations.items()],
        "resources": [asdict(share) for share in result.shares],
    }
