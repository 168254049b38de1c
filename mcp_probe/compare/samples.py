"""A recording as figures with their errors: what each operation's calls took, needed and kept."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from mcp_probe.aggregate.fold import Fold
from mcp_probe.compare.bootstrap import Estimate, estimates, libraries
from mcp_probe.compare.shapes import PROCESS, Figure, Key
from mcp_probe.model import BUDGET_PARTS, Frame, ProcessSample, RequestGroup, RequestRecord, Summary

FEWEST_CALLS = 20
FEWEST_FOR_P95 = 200
QUANTILES = {"p50": 0.5, "p95": 0.95}
SIZES = ("requested", "peak", "retained")
ERRORS = "errors"

_parts_of = attrgetter(*BUDGET_PARTS)


@dataclass(slots=True)
class _Calls:
    """One operation's calls, a column each; some 200 bytes a record. Sums of groups are items of their own."""

    at: array[float] = field(default_factory=lambda: array("d"))
    total: array[float] = field(default_factory=lambda: array("d"))  # ms
    weight: array[float] = field(default_factory=lambda: array("d"))  # calls that ended, of this total
    share: array[float] = field(default_factory=lambda: array("d"))  # calls that the record stands for; 0: no record
    failed: array[float] = field(default_factory=lambda: array("d"))
    parts: list[array[float]] = field(default_factory=lambda: [array("d") for _ in BUDGET_PARTS])
    unseen: list[int] = field(default_factory=lambda: [0] * len(BUDGET_PARTS))
    sizes: list[array[float]] = field(default_factory=lambda: [array("d") for _ in SIZES])  # -1: not known

    def add(self, record: RequestRecord) -> None:
        self.at.append(record.arrival_ns)
        self.total.append(max(0, record.end_ns - record.arrival_ns) / 1e6)
        self.weight.append(1.0)
        self.share.append(record.weight)
        self.failed.append(record.outcome in ("error", "tool_error"))
        for index, value in enumerate(_parts_of(record.budget)):
            self.unseen[index] += value is None
            self.parts[index].append((value or 0) / 1e6)
        for name, column in zip(SIZES, self.sizes, strict=True):
            size = None if record.memory is None else getattr(record.memory, name)
            column.append(-1.0 if size is None else size)

    def add_group(self, group: RequestGroup) -> None:
        failed = group.outcome in ("error", "tool_error")
        for _, count, total in group.durations:
            self.at.append((group.first_ns + group.last_ns) / 2)
            self.total.append(total / count / 1e6)
            self.weight.append(count)
            self.share.append(0.0)
            self.failed.append(failed)
            for part in self.parts:
                part.append(0.0)
            for size in self.sizes:
                size.append(-1.0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording says: its summary, and its figures."""

    summary: Summary
    figures: dict[Key, Figure]


def recorded(frames: Iterable[Frame]) -> Recorded:
    """Takes the frames of one recording in, once. Raises: MissingExtraError, and what reading ``frames`` does."""
    libraries()
    fold = Fold()
    calls: dict[str, _Calls] = {}
    process: list[ProcessSample] = []
    ended: list[tuple[int, int]] = []
    for frame in frames:
        fold.add(frame)
        if isinstance(frame, RequestRecord) and frame.kind != "notification" and frame.outcome != "unfinished":
            calls.setdefault(frame.name or frame.method, _Calls()).add(frame)
            ended.append((frame.end_ns, 1))
        elif isinstance(frame, RequestGroup) and frame.kind != "notification":
            calls.setdefault(frame.name or frame.method, _Calls()).add_group(frame)
            ended.append((frame.last_ns, frame.count))
        elif isinstance(frame, ProcessSample):
            process.append(frame)
    figures: dict[Key, Figure] = {}
    for operation, columns in calls.items():
        figures |= {(operation, name, ""): figure for name, figure in _of_calls(columns)}
    if (cpu := _cpu(process, ended)) is not None:
        figures[PROCESS, "cpu", ""] = cpu
    return Recorded(fold.summary(), figures)


def _of_calls(columns: _Calls) -> Iterator[tuple[str, Figure]]:
    np, _ = libraries()
    order = np.argsort(np.asarray(columns.at), kind="stable")
    total, weight, share = (np.asarray(each)[order] for each in (columns.total, columns.weight, columns.share))
    failed = np.asarray(columns.failed)[order]
    means = {"mean": (total * weight, weight), ERRORS: (failed * weight, weight)}
    for index, part in enumerate(BUDGET_PARTS):
        if not columns.unseen[index]:
            means[part] = (np.asarray(columns.parts[index])[order] * share, share)
    for name, column in zip(SIZES, columns.sizes, strict=True):
        size = np.asarray(column)[order]
        known = np.where(size >= 0, share, 0.0)
        if known.any():
            means[name] = (np.maximum(size, 0.0) * known, known)
    added = frozenset({ERRORS, *BUDGET_PARTS, "retained"})
    found = estimates(total, weight, QUANTILES, means, added)
    count = int(weight.sum())
    for name, estimate in found.items():
        unit = "bytes" if name in SIZES else "share" if name == ERRORS else "ms"
        whole = {"ms": found["mean"].value, "share": 1.0, "bytes": _kept_of(found)}[unit]
        fewest = FEWEST_FOR_P95 if name == "p95" else FEWEST_CALLS
        yield name, _figure(estimate, unit, name in added, count, fewest, whole)


def _kept_of(found: dict[str, Estimate]) -> float:
    """What retained bytes are held against."""
    return found["requested"].value if "requested" in found else 0.0


def _figure(estimate: Estimate, unit: str, is_part: bool, calls: int, fewest: int, whole: float) -> Figure:
    too_few = estimate.error is None or calls < fewest
    return Figure(
        estimate.value,
        unit,
        is_part=is_part,
        error=None if too_few else estimate.error,
        freedom=estimate.freedom,
        calls=calls,
        too_few=too_few,
        whole=whole if is_part else 0.0,
        is_of_host=unit == "ms",
    )


def _cpu(process: list[ProcessSample], ended: list[tuple[int, int]]) -> Figure | None:
    """CPU time of the process a request, the probe's own left out; an item is a sample, of about a second."""
    np, _ = libraries()
    if not process or not ended:
        return None
    ends = np.array([sample.at_ns for sample in process])
    at = np.minimum(np.searchsorted(ends, np.array([end for end, _ in ended])), len(ends) - 1)
    requests = np.bincount(at, weights=[count for _, count in ended], minlength=len(ends))
    used = np.array([max(0, sample.cpu_ns - sample.probe_cpu_ns) / 1e6 for sample in process])
    found = estimates(used / np.maximum(requests, 1), requests, {}, {"cpu": (used, requests)})
    return _figure(found["cpu"], "ms", False, int(requests.sum()), FEWEST_CALLS, 0.0)
