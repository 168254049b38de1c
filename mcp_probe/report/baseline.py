"""Findings of an earlier run, read from its JSON report: what ``--baseline`` compares with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from mcp_probe.aggregate.summary import FORMAT
from mcp_probe.errors import RecordingError
from mcp_probe.model import Finding, Severity


def read_baseline(path: Path) -> tuple[Finding, ...]:
    """The findings in ``path``, which `--json` wrote.

    Raises:
        RecordingError: it cannot be read, is no such report, or is of another version. Nothing may pass then.
    """
    try:
        report = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise RecordingError(f"Cannot read the baseline {path}: {exc.strerror}. {_EXPECTED}") from exc
    except (ValueError, RecursionError) as exc:
        raise RecordingError(f"The baseline {path} is not JSON ({exc}). {_EXPECTED}") from exc
    found = report.get("format") if isinstance(report, dict) else None
    if found != FORMAT:
        what = f"of the format {found!r}" if found else "no report of mcp_probe"
        raise RecordingError(f"The baseline {path} is {what}. {_EXPECTED} Its format is {FORMAT!r}.")
    return findings_in(report, path)


def findings_in(report: dict[str, Any], path: Path) -> tuple[Finding, ...]:
    """The findings of ``report``, which was read from ``path``. Raises: RecordingError where they cannot be read."""
    findings = report.get("findings")
    if not isinstance(findings, list) or not all(map(_is_finding, findings)):
        raise RecordingError(f"The report {path} is damaged: its findings cannot be read. {_EXPECTED}")
    return tuple(_finding(each) for each in findings)


_EXPECTED = "Expected the JSON of an earlier run: make one with `mcp-probe run --json FILE -- ...`."


def _is_finding(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("code", "subject"))
        and value.get("severity") in get_args(Severity)
        and isinstance(value.get("evidence"), dict)
    )


def _finding(value: dict[str, Any]) -> Finding:
    """What telling findings apart takes, and what it said."""
    sentence = str(value.get("sentence", ""))
    return Finding(value["code"], value["severity"], "exact", value["subject"], sentence, "", value["evidence"])
