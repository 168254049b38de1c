"""What a workload is handed: its size, timing with repeats, servers under the probe, and where its findings go."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio

from mcp_probe.workloads.bench.figures import sentence as as_sentence
from mcp_probe.workloads.bench.grader import UNTOLD, grade, tolerance
from mcp_probe.workloads.bench.machine import ForeignLoad, is_contended
from mcp_probe.workloads.bench.shapes import Check, Claim, Measured, Outcome, Part, Row, Stats, Why
from mcp_probe.workloads.bench.statistics import describe, ratio_floor, turn_order

T = TypeVar("T")


class Ms(float):
    """Milliseconds that a round took by its own clock: return one from a round that does more than what is timed."""


Timed = Callable[[], Any]
"""One round: a function or coroutine function. What it returns is ignored, unless it is :class:`Ms`."""

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Statistics of each label, milliseconds, of rounds in which all took turns; ``floor`` is the A/A of the twin."""

    stats: dict[str, Stats]
    floor: float | None

    def ratio(self, over: str, under: str) -> float:
        """Median over median."""
        return self.stats[over].median / self.stats[under].median


class Patience:
    """A bound on the time that a run may spend on repeating what others' load spoilt."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def spend(self, seconds: float) -> None:
        """Take off what was lost."""
        self._left -= seconds

    def affords(self, seconds: float) -> bool:
        """Whether as much may be spent once more."""
        return seconds <= self._left

    @property
    def left(self) -> bool:
        """Whether to repeat once more."""
        return self._left > 0


class Bench:
    """One run of one workload. Everything handed to :meth:`row` and :meth:`claim` survives an interruption."""

    def __init__(
        self, *, quick: bool, show: Show | None = None, patience_s: float = 0.0, pythons: Sequence[Path] = ()
    ) -> None:
        self.quick = quick
        self.pythons = tuple(pythons)  # interpreters that the user named
        self.ours: frozenset[int] = frozenset()  # processes of a server that is measured and was not started here
        self._show = show or (lambda what: None)
        self._patience = Patience(patience_s)
        self._rows: list[Row] = []
        self._whys: list[tuple[str, Why | str]] = []
        self._arms: dict[str, Why | str] = {}
        self._checks: list[Check] = []
        self._notes: list[str] = []
        self._missing: list[str] = []
        self._advice: Why | str = ""

    def size(self, quick: T, full: T) -> T:
        """``quick`` in a quick run, else ``full``."""
        return quick if self.quick else full

    def step(self, what: str) -> None:
        """Says on the progress line what is going on now."""
        self._show(what)

    # --- findings ---

    def row(self, table: str, label: str, unit: str, measured: Stats | float | None, **more: Any) -> None:
        """Keeps one :class:`Row`, to be handed in as soon as it is measured: Ctrl-C takes nothing that was.

        A server's readings are there only when it has ended, so ``why`` may be a function, which is asked at the end.
        Rows of one ``arm``, which is what ran and not how it is counted, share the reason that one of them has.
        """
        arm, why = more.pop("arm", ""), more.pop("why", "")
        if arm and why:
            self._arms.setdefault(arm, why)
        self._whys.append((arm, why))
        self._rows.append(Row(table=table, label=label, unit=unit, measured=measured, **more))

    def claim(
        self,
        claim: Claim,
        *found: Measured | Sequence[Measured],
        said: str,
        why: str = "",
        untold: str = "",
        value: float | None = None,
    ) -> Check:
        """Grades ``claim`` by what was found of each thing it says, and keeps it.

        Several figures of one thing must all be as it says. ``said`` is the figures as a reader wants them, ``why`` a
        reading that is true whatever comes out. Without figures the claim cannot be told; ``untold`` says why.
        ``value`` is the number to keep where it is not the first figure.
        """
        each = [[one] if isinstance(one, Measured) else one for one in found]
        parts = (
            tuple(Part(asked, one) for asked, every in zip(claim.asked, each, strict=True) for one in every)
            if found
            else ()
        )
        found_of_it = grade(parts)
        reasons = {
            "holds": (claim.why_holds,),
            "in shape": (claim.why_holds, claim.why_shape),
            "does not hold": (claim.why_not,),
            UNTOLD: (found_of_it.reason or untold,),
        }[found_of_it.verdict]
        told = dict.fromkeys(as_sentence(each) for each in (*reasons, claim.why, why) if each)
        check = Check(
            claim=claim.claim,
            sentence=claim.sentence,
            documented=claim.documented,
            measured=said,
            tolerance=", ".join(filter(None, (tolerance(claim.asked), claim.how))),
            verdict=found_of_it.verdict,
            why=" ".join(told),
            value=parts[0].measured.value if parts and value is None else value,
            contended=any(part.measured.contended for part in parts),
            parts=parts,
        )
        self._checks.append(check)
        return check

    def note(self, sentence: str) -> None:
        """Something a reader of this workload's figures must know."""
        self._notes.append(sentence)

    def advise(self, sentence: Why | str) -> None:
        """What to do, as far as this run can tell; there is one of it. A function is asked at the end."""
        self._advice = sentence

    def lacks(self, library: str, what: str) -> None:
        """``library`` is not installed, so ``what`` was not measured."""
        self._missing.append(f"{library} is not installed: {what}")

    @property
    def has_findings(self) -> bool:
        """Whether anything was handed in."""
        return bool(self._rows or self._checks or self._notes)

    def outcome(self, *, complete: bool = True) -> Outcome:
        """What was handed in so far.

        With ``complete=False`` a row whose readings never came, or cannot be explained, is without its sentence.

        Raises: LaunchError where a complete run has no readings for a row that wants them.
        """
        rows = [
            replace(row, why=_told(why or self._arms.get(arm, ""), complete))
            for row, (arm, why) in zip(self._rows, self._whys, strict=True)
        ]
        advice = _told(self._advice, complete)
        return Outcome(tuple(rows), tuple(self._checks), tuple(self._notes), tuple(self._missing), complete, advice)

    # --- timing ---

    def load(self) -> ForeignLoad:
        """Counts from now on what others use of the machine."""
        return ForeignLoad(self.ours)

    async def timed(self, call: Timed, rounds: int, *, warm_up: int = 0, first_apart: bool = True) -> Stats:
        """Statistics of ``rounds`` rounds, milliseconds, after ``warm_up`` that are thrown away.

        Where others used the machine it all is run again, as long as the workload's patience lasts.
        """
        found = await self.interleaved({"": call}, rounds, warm_up=warm_up, first_apart=first_apart)
        return found.stats[""]

    async def interleaved(
        self,
        calls: Mapping[str, Timed],
        rounds: int,
        *,
        twin: str | None = None,
        warm_up: int = 0,
        first_apart: bool = True,
    ) -> Interleaved:
        """Like :meth:`timed` for each label; in every round all have a turn, in an order that favours nobody.

        ``twin`` names a label that gets two turns a round; the ratio of their medians is the A/A floor.
        """
        turns = dict(calls)
        if twin is not None:
            turns[f"{twin} again"] = calls[twin]
        taken, foreign, reruns = await self._undisturbed(lambda: _take_turns(turns, rounds, warm_up))
        stats = {
            label: describe(taken[label], first_apart=first_apart, foreign_cores=foreign, reruns=reruns)
            for label in calls
        }
        floor = None if twin is None else ratio_floor(taken[twin], taken[f"{twin} again"])
        return Interleaved(stats, floor)

    async def quiet(self, measure: Callable[[], Awaitable[T]]) -> tuple[T, float | None, bool]:
        """Runs ``measure`` once, again where contended and patience lasts: (result, foreign cores, contended)."""
        found, foreign, _ = await self._undisturbed(measure)
        return found, foreign, is_contended(foreign)

    async def _undisturbed(self, measure: Callable[[], Awaitable[T]]) -> tuple[T, float | None, int]:
        """As far as patience lasts: (result, foreign cores, how often it was run again)."""
        reruns = 0
        while True:
            began, load = time.monotonic(), self.load()
            found = await measure()
            foreign, elapsed_s = load.cores(), time.monotonic() - began
            if not is_contended(foreign) or not self._patience.affords(elapsed_s):
                return found, foreign, reruns
            self._patience.spend(elapsed_s)
            reruns += 1

    # --- servers ---

    def server(
        self,
        module: str,
        *arguments: str,
        transport: Literal["stdio", "sse", "json"] = "stdio",
        probe: bool = True,
        mode: Literal["auto", "legacy"] = "auto",
        connect: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[Any]:
        """A bundled server in a process of its own, see :func:`mcp_probe.workloads.bench.serving.profiled_server`."""
        from mcp_probe.workloads.bench.serving import profiled_server

        return profiled_server(
            module, arguments, transport=transport, probe=probe, mode=mode, connect=connect, options=options
        )


def _told(why: Why | str, complete: bool) -> str:
    try:
        return why if isinstance(why, str) else why()
    except Exception:  # what was measured is kept, whatever is wrong with the readings
        if complete:
            raise
        return ""


async def _take_turns(calls: Mapping[str, Timed], rounds: int, warm_up: int) -> dict[str, list[float]]:
    labels = list(calls)
    for _ in range(warm_up):
        for label in labels:
            await _one(calls[label])
    taken: dict[str, list[float]] = {label: [] for label in labels}
    for turn in range(rounds):
        for label in turn_order(labels, turn):
            taken[label].append(await _one(calls[label]))
    return taken


async def _one(call: Timed) -> float:
    began = time.perf_counter_ns()
    result = call()
    if inspect.isawaitable(result):
        result = await result
    elapsed_ms = (time.perf_counter_ns() - began) / 1e6
    await anyio.sleep(0)
    return float(result) if isinstance(result, Ms) else elapsed_ms
