"""One recording, five ways out: JSON, console, page, SQL and telemetry say the same of each operation.

Where two differ by design, the bound stands at the comparison:

- Percentiles of JSON, console and page are of buckets 6.25 % wide, and those of SQL of single requests (``BUCKET``).
- Telemetry's duration has the conventions' buckets: a percentile can only be said to lie in one of them.
- Telemetry's histograms hold the lower ends of what is bounded, and the JSON gives both ends.
- How much brief work held others up is bounded by the samples that have come by then. Telemetry waits longer for them
  than the fold, so its lower end may be nearer to the truth; both lie below the upper end.
- Console and page show two or three digits: the same text is expected of both, made from the JSON's number.
- Findings are in JSON, on the console and on the page. SQL has no view of them, and telemetry sends none.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.trace import ReadableSpan

from mcp_probe import cli
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import scope_of
from mcp_probe.export.metrics import MetricExport
from mcp_probe.export.phase_spans import SpanExport
from mcp_probe.model import BUDGET_PARTS, CROWDING_OPERATION, Frame, RequestRecord
from mcp_probe.record.file import encode, preamble, read_recording
from mcp_probe.report import figures
from mcp_probe.report.budget import PARTS
from mcp_probe.report.sections.waits import PSEUDO_BLOCKERS
from tests.export.collected import Backend, points
from tests.launch.running import probe_run, program
from tests.launch.test_real_server import SERVER, drive
from tests.query.test_query import asked
from tests.report.page_reader import Reader, squeezed
from tests.report.recordings import shop
from tests.tracing import Spans, attributes_of

BUCKET = 1.0625
ROUNDING_MS = 2e-6  # of integer nanoseconds, added up as floats
ATTRIBUTE = {
    "queue_transport": names.QUEUE_WAIT_TRANSPORT,
    "queue_dispatch": names.QUEUE_WAIT_DISPATCH,
    "busy": names.BUSY_TIME,
    "ready_wait": names.READY_WAIT_TIME,
    "executor_run": names.EXECUTOR_RUN_TIME,
    "awaiting": names.AWAITING_TIME,
    "write_wait": names.WRITE_WAIT_TIME,
    "write_flush": names.WRITE_FLUSH_TIME,
}
INSTRUMENT = {
    "busy": names.BUSY,
    "ready_wait": names.READY_WAIT,
    "awaiting": names.AWAITING,
    "write_wait": names.WRITE_WAIT,
    "write_flush": names.WRITE_FLUSH,
}

TIME = re.compile(r"\[[^]]+ (?:ms|s|min|h)\]|[≥≤~]?<?[\d.]+ (?:ms|s|min|h)\b")

Key = tuple[str, str]
"""(method, operation)"""


@dataclass(frozen=True)
class Durations:
    """The conventions' histogram of one operation, whatever its requests' outcomes."""

    count: int
    sum: float
    buckets: list[int]


@dataclass(frozen=True)
class Outputs:
    """Everything that is said of one recording."""

    path: Path
    frames: list[Frame]
    json: dict[str, Any]
    console: str
    page: Reader
    durations: dict[Key, Durations]  # of telemetry
    sums: dict[str, dict[frozenset[tuple[str, Any]], Any]]  # of telemetry: our histograms
    spans: list[ReadableSpan]

    @property
    def operations(self) -> dict[Key, dict[str, Any]]:
        """Of the JSON."""
        return {(row["method"], row["name"]): row for row in self.json["operations"]}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What the recording answers."""
        return asked(sql, self.path)

    def lasted(self) -> dict[Key, list[float]]:
        """By SQL: the times of each operation's requests, in order."""
        found: defaultdict[Key, list[float]] = defaultdict(list)
        for method, operation, ms in self.rows("SELECT method, operation, total_ms FROM requests ORDER BY total_ms"):
            found[method, operation].append(ms)
        return found


def drawn(folder: Path) -> Path:
    path = folder / "shop.jsonl"
    path.write_bytes(preamble() + b"".join(map(encode, shop(1500))))
    return path


def real(folder: Path) -> Path:
    path = folder / "real.jsonl"
    drive(probe_run(program(folder, SERVER), "--record", str(path)), folder / "stderr.txt")
    return path


@pytest.fixture(scope="module", params=[drawn, real], ids=["drawn", "real"])
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    folder = tmp_path_factory.mktemp("agree")
    path = request.param(folder)
    frames = list(read_recording(path))
    summary, page = folder / "summary.json", folder / "page.html"
    assert cli.main(["report", str(path), "--json", str(summary), "--html", str(page)]) == 0
    durations, sums = measured(frames)
    return Outputs(
        path,
        frames,
        json.loads(summary.read_text("utf-8")),
        printed(path),
        Reader(page.read_text("utf-8")),
        durations,
        sums,
        spans_of(frames),
    )


def printed(path: Path) -> str:
    """What the console shows, wide enough for everything."""
    from mcp_probe.aggregate.fold import Fold
    from mcp_probe.report.console import render

    fold = Fold()
    for frame in read_recording(path):
        fold.add(frame)
    return render(fold.summary(), width=1000, color=False, ascii_only=False)


def measured(frames: list[Frame]) -> tuple[dict[Key, Durations], dict[str, dict[frozenset[tuple[str, Any]], Any]]]:
    backend, ours = Backend(), HistogramSet()
    export = MetricExport(backend.provider, histograms=[ours])
    export.take(frames)
    export.close(1.0)
    durations: dict[Key, Durations] = {}
    for attributes, point in points(backend.collect()[names.OPERATION_DURATION.name]).items():
        told = dict(attributes)
        method = told[names.MCP_METHOD_NAME]
        key = (method, told.get(names.GEN_AI_TOOL_NAME, method))
        known = durations.get(key, Durations(0, 0.0, [0] * len(point.bucket_counts)))
        buckets = [sum(counts) for counts in zip(known.buckets, point.bucket_counts, strict=True)]
        durations[key] = Durations(known.count + point.count, known.sum + point.sum, buckets)
    scope = scope_of(ours, AggregationTemporality.CUMULATIVE)
    assert scope is not None
    return durations, {metric.name: points(metric) for metric in scope.metrics}


def spans_of(frames: list[Frame]) -> list[ReadableSpan]:
    """SERVER spans, as the parent of `mcp-probe run --otlp` makes them where each request is sampled."""
    spans = Spans()
    export = SpanExport(spans.provider, give_ids=spans.ids.give, anchor=lambda: (0.0, 0))
    export.take([traced(frame) for frame in frames])
    export.close(1.0)
    return spans.server()


def traced(frame: Frame) -> Frame:
    if not isinstance(frame, RequestRecord):
        return frame
    trace, span = f"{frame.id:032x}", f"{frame.id:016x}"
    return replace(frame, trace_id=trace, span_id=span, trace_flags=1, server_span=None)


# --- counts and times -----------------------------------------------------------------------------


def test_counts_are_the_same_everywhere(out: Outputs) -> None:
    counts = {key: row["count"] for key, row in out.operations.items()}
    assert counts
    assert {key: len(times) for key, times in out.lasted().items()} == counts
    assert {key: point.count for key, point in out.durations.items()} == counts
    spans: defaultdict[str, int] = defaultdict(int)
    for span in out.spans:
        spans[operation_of(span)] += 1
    assert spans == {operation: count for (_, operation), count in counts.items()}
    for key, row in table(out).items():
        assert row["calls"] == figures.quantity(counts[key])
    labels = [found.get("aria-label") or "" for tag, found in out.page.elements if tag == "svg"]
    for (_, operation), count in counts.items():
        assert any(label.startswith(f"{operation}: {figures.plural(count, 'call')}, ") for label in labels)


def operation_of(span: ReadableSpan) -> str:
    attributes = attributes_of(span)
    return str(attributes.get(names.GEN_AI_TOOL_NAME, attributes[names.MCP_METHOD_NAME]))


def table(out: Outputs) -> dict[Key, dict[str, str]]:
    """The console's table of operations."""
    lines = out.console.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Where the time goes"))
    lines = lines[start + 2 : lines.index("", start)]
    found: dict[Key, dict[str, str]] = {}
    for key in out.operations:
        (line,) = (line for line in lines if line.startswith(f" {key[1]} "))
        calls, *_ = line.removeprefix(f" {key[1]} ").split()
        found[key] = {"calls": calls, **dict(zip(("in all", "p50", "p95", "p99"), TIME.findall(line), strict=False))}
    return found


def test_percentiles_are_the_same_everywhere(out: Outputs) -> None:
    lasted, shown = out.lasted(), table(out)
    for key, row in out.operations.items():
        times = lasted[key]
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            ms = row["total_ms"][name]
            rank = share * (len(times) - 1)
            below, above = times[max(0, int(rank) - 1)], times[min(len(times) - 1, int(rank) + 2)]
            assert below / BUCKET <= ms <= above * BUCKET, (key, name)
            quality = row["quality"].get(f"total_{name}_ms") or row["quality"].get(name)
            if quality is None and not shown[key][name].startswith(("[", "≥", "≤", "~")):
                assert shown[key][name] == figures.duration(ms)
                assert squeezed(f"{key[1]}{shown[key]['calls']}") in squeezed(out.page.text)
            assert squeezed(shown[key][name]) in squeezed(out.page.text)
        if key in out.durations:
            assert_in_buckets(out.durations[key], row["total_ms"]["p50"])
            assert out.durations[key].sum == pytest.approx(sum(times) / 1e3)


def assert_in_buckets(found: Durations, ms: float) -> None:
    """The median lies between the buckets of the two requests in the middle."""
    bounds = (0.0, *names.OPERATION_BOUNDARIES_S, float("inf"))
    sorted_buckets = [at for at, count in enumerate(found.buckets) for _ in range(count)]
    low = sorted_buckets[(found.count - 1) // 2]
    high = sorted_buckets[min(found.count - 1, found.count // 2)]
    assert bounds[low] * 1e3 / BUCKET <= ms <= bounds[high + 1] * 1e3 * BUCKET


# --- the budget -----------------------------------------------------------------------------------


def test_budgets_are_the_same_in_json_sql_and_on_spans(out: Outputs) -> None:
    columns = ", ".join(f"avg({part}_ms)" for part in BUDGET_PARTS)
    means = {row[:2]: row[2:] for row in out.rows(f"SELECT method, operation, {columns} FROM requests GROUP BY 1, 2")}
    spans: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in out.spans:
        spans[operation_of(span)].append(dict(attributes_of(span)))
    compared = 0
    for key, row in out.operations.items():
        for part, mean in zip(BUDGET_PARTS, means[key], strict=True):
            if mean is None:
                assert row["budget_ms"][part] is None
                continue
            quality = row["quality"].get(part, {})
            low, high = (quality.get("lo") or 0.0, quality.get("hi")) if quality else (mean, mean)
            assert row["budget_ms"][part] == pytest.approx(mean, abs=ROUNDING_MS)
            if part in ATTRIBUTE and high is not None:
                told = [one.get(ATTRIBUTE[part], 0.0) for one in spans[key[1]]]
                assert low - ROUNDING_MS <= 1e3 * sum(told) / len(told) <= mean + ROUNDING_MS, (key, part)
                compared += 1
    assert compared > 10


def test_budgets_are_the_same_in_json_and_metrics(out: Outputs) -> None:
    """Telemetry has the lower end of what is bounded."""
    compared = 0
    for (method, operation), row in out.operations.items():
        if method != "tools/call":
            continue
        for part, instrument in INSTRUMENT.items():
            mean, quality = row["budget_ms"][part], row["quality"].get(part, {})
            point = out.sums.get(instrument.name, {}).get(frozenset({(names.GEN_AI_TOOL_NAME, operation)}))
            if point is None or mean is None:
                assert not mean
                continue
            low = quality.get("lo", mean) if quality.get("tag") == "bounded" else mean
            assert low - ROUNDING_MS <= 1e3 * point.sum / row["count"] <= mean + ROUNDING_MS, (operation, part)
            compared += 1
    assert compared >= 5


def test_the_bars_of_the_page_are_as_long_as_the_budgets_of_the_json(out: Outputs) -> None:
    bars = bars_of(out)
    for (_, operation), row in out.operations.items():
        means = {part: row["budget_ms"][part] or 0.0 for part in BUDGET_PARTS}
        whole = sum(means.values())
        for part in PARTS:
            share = sum(means[name] for name in part.fields) / whole
            assert bars[operation].get(part.role, 0.0) == pytest.approx(100 * share, abs=0.02), (operation, part.name)


def bars_of(out: Outputs) -> dict[str, dict[str, float]]:
    """Of the page's table: operation -> role -> percent."""
    section = re.search(r'<section id="operations".*?</section>', out.page.source, re.S)
    assert section is not None
    found: dict[str, dict[str, float]] = {}
    for row in re.findall(r"<tr><td.*?</tr>", section[0], re.S):
        (name,) = re.findall(r'<span class="name">(.*?)</span>', row)[:1]
        found[name] = {
            role: float(width) for role, width in re.findall(r'<i class="(part-\w+)" style="width:(.*?)%"', row)
        }
    return found


# --- who waited for whom --------------------------------------------------------------------------


def test_who_waited_for_whom_is_the_same_everywhere(out: Outputs) -> None:
    sql = "SELECT victim, blocker, sum(lo_ms * weight), sum(hi_ms * weight) FROM blocked_by GROUP BY 1, 2"
    asked_for = {row[:2]: row[2:] for row in out.rows(sql)}
    told = {(row["victim"], row["blocker"]): row for row in out.json["blocked_by"] if row.get("kind") is None}
    assert told and told.keys() == asked_for.keys()
    cells = dict(cells_of(out.page))
    metric = {
        (dict(key)[names.GEN_AI_TOOL_NAME], dict(key)[names.BLOCKER]): point.sum
        for key, point in out.sums.get(names.BLOCKED.name, {}).items()
        if names.GEN_AI_TOOL_NAME in dict(key)
    }
    for (victim, blocker), row in told.items():
        assert (row["lo_ms"], row["hi_ms"]) == pytest.approx(asked_for[victim, blocker], abs=1e-4)
        named = names.SMALL_STEPS if blocker == CROWDING_OPERATION else blocker
        if (victim, named) in metric:
            most = row["hi_ms"] if blocker == CROWDING_OPERATION else row["lo_ms"]
            assert row["lo_ms"] - 1e-4 <= metric[victim, named] * 1e3 <= most + 1e-4, (victim, blocker)
        if row["lo_ms"] == row["hi_ms"] and row["quality"] == "exact" and row["lo_ms"] >= 0.05:
            shown = figures.duration(row["hi_ms"])
            assert squeezed(f"waited {shown} for") in squeezed(cells[victim, blocker])
            who = PSEUDO_BLOCKERS.get(blocker, blocker)
            lines = [squeezed(line) for line in out.console.splitlines() if line.startswith(f" {victim}")]
            listed = [line for line in lines if line.endswith(squeezed(f"for {who}")) or squeezed(f"for {who}") in line]
            hidden = "more pairs" in out.console
            assert any(squeezed(f"waited{shown}") in line for line in listed) or hidden


def cells_of(page: Reader) -> Iterator[tuple[tuple[str, str], str]]:
    """The map's cells: (victim, blocker) and what each says."""
    for tag, found in page.elements:
        if tag == "button" and found.get("data-victim"):
            yield (str(found["data-victim"]), str(found["data-blocker"])), str(found["aria-label"])


# --- findings -------------------------------------------------------------------------------------


def test_findings_are_the_same_in_json_on_the_console_and_on_the_page(out: Outputs) -> None:
    found = [out.json["verdict"], *out.json["findings"]]
    assert out.json["verdict"]["sentence"]
    for finding in found:
        sentence = squeezed(finding["sentence"])
        assert sentence in squeezed(out.console)
        assert sentence in squeezed(out.page.text)
        if finding.get("advice"):
            assert squeezed(finding["advice"]) in squeezed(out.page.text)


def test_each_request_of_the_page_has_the_times_of_its_record(out: Outputs) -> None:
    asked_for = {row[0]: row[1:] for row in out.rows("SELECT id, total_ms, busy_ms, awaiting_ms FROM requests")}
    names_of = [part["name"] for part in out.page.data["parts"]]
    for request in out.page.data["requests"]:
        total, busy, awaiting = asked_for[request["id"]]
        assert request["to"] - request["from"] == pytest.approx(total, abs=0.002)
        assert request["budget"][names_of.index("busy")] == pytest.approx(busy, abs=0.001)
        assert request["budget"][names_of.index("awaiting")] == pytest.approx(awaiting or 0.0, abs=0.001)
