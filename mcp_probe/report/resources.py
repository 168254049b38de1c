"""What the resources ``probe://report`` and ``probe://findings`` say."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from mcp_probe.model import Summary
from mcp_probe.report.console import DEFAULT_WIDTH, render

FINDINGS_FORMAT = "mcp_probe.findings/1"


def report_text(summary: Summary) -> str:
    """The report, without colours."""
    return render(summary, width=DEFAULT_WIDTH, color=False, ascii_only=False, stream=io.StringIO())


def findings_json(summary: Summary) -> str:
    """Verdict and findings, with keys as in the JSON summary."""
    whole: dict[str, Any] = summary.to_json()
    kept = {key: whole[key] for key in ("probe_version", "server", "window", "requests", "verdict", "findings")}
    kept["operations"] = [
        {key: row[key] for key in ("name", "method", "count", "errors", "total_ms")} for row in whole["operations"]
    ]
    return json.dumps({"format": FINDINGS_FORMAT, **kept}, indent=1)


TEXTS: Mapping[str, Callable[[Summary], str]] = {"report": report_text, "findings": findings_json}
"""By the part of the URI after the scheme."""
