"""Files of every kind as :class:`Reading`; a file's first bytes say what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.summary import FORMAT as SUMMARY_FORMAT
from mcp_probe.compare.samples import SIZES, Recorded, recorded
from mcp_probe.compare.shapes import Figure, Key, Reading
from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.model import BUDGET_PARTS, Finding
from mcp_probe.record.file import FORMAT_NAME
from mcp_probe.record.parts import Show, files_of, read_parts
from mcp_probe.report.baseline import findings_in
from mcp_probe.workloads.bench.results import FORMAT as BENCH_FORMAT
from mcp_probe.workloads.bench.results import read_results
from mcp_probe.workloads.bench.shapes import Results, Row, Stats
from mcp_probe.workloads.status_line import StatusLine

_EXPECTED = (
    f"Expected a recording (format {FORMAT_NAME!r}, `mcp-probe run --record FILE`), a JSON report "
    f"({SUMMARY_FORMAT!r}, `--json FILE`) or results of `mcp-probe bench --json` ({BENCH_FORMAT!r})."
)


def read_side(paths: list[Path], status: StatusLine | None = None) -> list[Reading]:
    """Each file of one side; ``status`` says how far that is.

    Raises: RecordingError, OptionError, MissingExtraError.
    """
    return [read(path, None if status is None else status.share_of(path.name)) for path in paths]


def read(path: Path, show: Show | None = None) -> Reading:
    """One file. Raises: RecordingError where it cannot be read or is none of ours; MissingExtraError."""
    values = _first_object(path)
    found = values.get("format")
    if found == FORMAT_NAME:
        return reading_of(recorded(read_parts(path, show)), path.name)
    if found == BENCH_FORMAT:
        return _of_bench(read_results(path), path.name)
    if found == SUMMARY_FORMAT:
        return _of_summary(values, path)
    what = f"says format {found!r}" if isinstance(found, str) and found else "names no format"
    raise RecordingError(f"{path} {what}. {_EXPECTED}")


def check_kinds(readings: list[Reading]) -> None:
    """Raises: OptionError where results of bench stand beside something else."""
    kinds = {reading.kind == "bench" for reading in readings}
    if len(kinds) > 1:
        raise OptionError(
            "Results of `mcp-probe bench` can only be compared with results of bench; the files are of both kinds."
        )


def _first_object(path: Path) -> dict[str, Any]:
    """The first line of a recording, or all of a report."""
    try:
        with files_of(path)[-1].open("rb") as stream:
            first = stream.readline()
            values = _object(first)
            if values is None or values.get("format") != FORMAT_NAME:
                rest = stream.read()
                values = _object(first + rest) if rest else values
    except OSError as exc:
        raise RecordingError(f"Cannot read {path}: {exc.strerror}. {_EXPECTED}") from exc
    if values is None:
        raise RecordingError(f"{path} is not JSON. {_EXPECTED}")
    return values


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else {}


def reading_of(found: Recorded, name: str) -> Reading:
    """A recording called ``name``."""
    summary, server = found.summary, found.summary.server
    return Reading(
        "recording",
        name,
        found.figures,
        summary.findings,
        _contended(name, summary.findings),
        {each: str(getattr(server, each)) for each in _SETTINGS},
        notes=summary.notes,
    )


_SETTINGS = ("name", "sdk", "sdk_version", "transport", "loop", "python")


def _contended(name: str, findings: tuple[Finding, ...]) -> str:
    pressure = next((finding for finding in findings if finding.code == "host-pressure"), None)
    if pressure is None:
        return ""
    return f"{name} was recorded while others used the machine: {pressure.sentence}".rstrip()


def _of_summary(values: dict[str, Any], path: Path) -> Reading:
    findings = findings_in(values, path)
    try:
        figures = dict(_of_operations(values["operations"]))
        server = {name: str(values["server"][name]) for name in _SETTINGS}
    except (KeyError, TypeError, AttributeError) as exc:
        raise RecordingError(f"{path} is damaged: {type(exc).__name__}: {exc}. {_EXPECTED}") from exc
    return Reading("summary", path.name, figures, findings, _contended(path.name, findings), server)


def _of_operations(operations: list[dict[str, Any]]) -> Iterator[tuple[Key, Figure]]:
    for row in operations:
        if row["kind"] == "notification":
            continue
        name, calls = str(row["name"]), int(row["count"])
        budget = {part: row["budget_ms"][part] for part in BUDGET_PARTS if row["budget_ms"][part] is not None}
        whole = sum(budget.values())
        for measure in ("p50", "p95"):
            if row["total_ms"][measure] is not None:
                yield (name, measure, ""), Figure(row["total_ms"][measure], "ms", calls=calls)
        for part, mean in budget.items():
            yield (name, part, ""), Figure(mean, "ms", is_part=True, calls=calls, whole=whole)
        for size in SIZES:
            middle = row["memory"][size]["p50"]
            if middle is not None:
                # A median, where recordings give means: another row.
                figure = Figure(float(middle), "bytes", size == "retained", calls=calls, is_of_host=False)
                yield (name, f"{size} p50", ""), figure


def _of_bench(results: Results, name: str) -> Reading:
    figures: dict[Key, Figure] = {}
    for result in results.results:
        for row in result.outcome.rows:
            if row.figure is not None:
                about = " ".join(filter(None, (row.metric, row.unit, row.protocol)))
                figures[result.name, f"{row.table} {row.label}", about] = _of_row(row)
    checks = [check for result in results.results for check in result.outcome.checks]
    claims = {check.claim: (check.sentence, str(check.verdict)) for check in checks}
    settings = _flat({"size": results.size, **results.machine})
    return Reading("bench", name, figures, settings=settings, claims=claims)


def _of_row(row: Row) -> Figure:
    """The error follows from the 95 % interval of the mean, by Student's t."""
    assert row.figure is not None
    error, freedom = None, 0.0
    stats = row.measured
    if isinstance(stats, Stats) and stats.ci_high is not None and stats.sd is not None and stats.mean > 0:
        error, freedom = stats.sd / stats.n**0.5 / stats.mean, stats.n - 1.0
    calls, floor = stats.n if isinstance(stats, Stats) else 1, row.noise_floor
    return Figure(
        row.figure,
        row.unit,
        error=error,
        freedom=freedom,
        calls=calls,
        floor=floor,
        contended=row.is_contended,
    )


def _flat(values: dict[str, object]) -> dict[str, str]:
    """``packages`` opened up."""
    packages = values.get("packages")
    rest = {name: value for name, value in values.items() if name != "packages"}
    known = {**rest, **packages} if isinstance(packages, dict) else rest
    return {name: str(value) for name, value in known.items() if value is not None}
