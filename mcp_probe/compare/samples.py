"""A recording as figures with their errors: what each operation's calls took, needed and kept."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

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


MOST_ITEMS = 400_000
"""Of one recording; some 200 bytes each. Beyond, the operation that has most of them keeps half."""

_SEED = 20261126  # the same files give the same answer


class _Calls:
    """One operation's calls, a column each. Sums of groups are items of their own.

    Attributes:
        count: Calls that ended, whatever has been left out.
    """

    def __init__(self) -> None:
        self.count = 0
        self.at = array("d")
        self.total = array("d")  # ms
        self.weight = array("d")  # calls that ended, of this total
        self.share = array("d")  # calls that the record stands for; 0: no record
        self.failed = array("d")
        self.parts = [array("d") for _ in BUDGET_PARTS]
        self.unseen = [0] * len(BUDGET_PARTS)
        self.sizes = [array("d") for _ in SIZES]  # -1: not known

    def __len__(self) -> int:
        return len(self.at)

    def add(self, record: RequestRecord) -> None:
        self.count += 1
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
        self.count += group.count
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

    def thin(self) -> None:
        """Keep about half of the items: heavy ones more often, each with the weight of those it stands for.

        Source: D. G. Horvitz, D. J. Thompson (1952), JASA 47, 663: sums of x / p are unbiased.
        """
        np, _ = libraries()
        weight = np.maximum(np.asarray(self.weight), np.asarray(self.share))
        low, high = 0.0, 1.0 / weight.min()
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if np.minimum(1, weight * middle).sum() > len(weight) / 2 else (middle, high)
        chance = np.minimum(1, weight * high)
        kept = np.random.default_rng(_SEED + len(weight)).random(len(weight)) < chance
        scale = 1 / chance[kept]

        def some(column: array[float], factor: Any = 1.0) -> array[float]:
            return array("d", (np.asarray(column)[kept] * factor).tobytes())

        self.weight, self.share = some(self.weight, scale), some(self.share, scale)
        self.at, self.total, self.failed = some(self.at), some(self.total), some(self.failed)
        self.parts, self.sizes = [some(each) for each in self.parts], [some(each) for each in self.sizes]


class _Cpu:
    """CPU time of the process a request, the probe's own left out; an item is a sample, of about a second."""

    def __init__(self) -> None:
        self._at = array("q")  # of samples
        self._used = array("d")  # ms
        self._requests = array("d")
        self._open: list[tuple[int, int]] = []  # (end, requests), whose sample may still come

    def add_sample(self, sample: ProcessSample) -> None:
        self._at.append(sample.at_ns)
        self._used.append(max(0, sample.cpu_ns - sample.probe_cpu_ns) / 1e6)
        self._requests.append(0)
        ended, self._open = self._open, []
        for end_ns, count in ended:
            self.add(end_ns, count)

    def add(self, end_ns: int, count: int) -> None:
        at = bisect_left(self._at, end_ns)
        if at < len(self._at):
            self._requests[at] += count
        elif len(self._open) < MOST_ITEMS:
            self._open.append((end_ns, count))
        elif self._at:  # no sample comes any more
            self._requests[-1] += count

    def figure(self) -> Figure | None:
        np, _ = libraries()
        if not self._at or not (self._open or any(self._requests)):
            return None
        requests, used = np.asarray(self._requests), np.asarray(self._used)
        requests[-1] += sum(count for _, count in self._open)
        found = estimates(used / np.maximum(requests, 1), requests, {}, {"cpu": (used, requests)})
        return _figure(found["cpu"], "ms", False, int(requests.sum()), FEWEST_CALLS, 0.0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording says: its summary, and its figures."""

    summary: Summary
    figures: dict[Key, Figure]


def recorded(frames: Iterable[Frame]) -> Recorded:
    """Takes the frames of one recording in, once. Raises: MissingExtraError, and what reading ``frames`` does."""
    libraries()
    fold, cpu = Fold(), _Cpu()
    calls: dict[str, _Calls] = {}
    items = 0
    for frame in frames:
        fold.add(frame)
        if isinstance(frame, ProcessSample):
            cpu.add_sample(frame)
        if not isinstance(frame, (RequestRecord, RequestGroup)) or frame.kind == "notification":
            continue
        columns = calls.setdefault(frame.name or frame.method, _Calls())
        before = len(columns)
        if isinstance(frame, RequestGroup):
            columns.add_group(frame)
            cpu.add(frame.last_ns, frame.count)
        elif frame.outcome != "unfinished":
            columns.add(frame)
            cpu.add(frame.end_ns, 1)
        items += len(columns) - before
        if items > MOST_ITEMS:
            max(calls.values(), key=len).thin()
            items = sum(map(len, calls.values()))
    figures: dict[Key, Figure] = {}
    for operation, columns in calls.items():
        if not len(columns):
            continue
        figures |= {(operation, name, ""): figure for name, figure in _of_calls(columns)}
    if (of_process := cpu.figure()) is not None:
        figures[PROCESS, "cpu", ""] = of_process
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
    for name, estimate in found.items():
        unit = "bytes" if name in SIZES else "share" if name == ERRORS else "ms"
        whole = {"ms": found["mean"].value, "share": 1.0, "bytes": _kept_of(found)}[unit]
        fewest = FEWEST_FOR_P95 if name == "p95" else FEWEST_CALLS
        yield name, _figure(estimate, unit, name in added, columns.count, fewest, whole)


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
