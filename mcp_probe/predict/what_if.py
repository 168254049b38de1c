"""From a recording and changes to what they would give: the question and its answer as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mcp_probe.model import Frame
from mcp_probe.predict.build import workload_of
from mcp_probe.predict.change import Change
from mcp_probe.predict.changes import changed
from mcp_probe.predict.check import Checked, check
from mcp_probe.predict.outcome import Figures, Result, figures_of, measured, result_of
from mcp_probe.predict.recorded import CannotPredictError, Recorded
from mcp_probe.predict.simulate import Outcome, simulate
from mcp_probe.predict.workload import Workload


@dataclass(frozen=True, slots=True)
class Window:
    """A window that can be run again: unchanged, it gives what was measured."""

    workload: Workload
    checks: tuple[Checked, ...]
    unchanged: Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """``before`` is what was measured, with the shares of the unchanged simulation; ``after`` is what would be."""

    changes: tuple[Change, ...]
    window: Window
    before: Result
    after: Result


def window_of(frames: Iterable[Frame] | Recorded, assumed: str | None = None) -> Window:
    """The window of a recording, checked.

    Raises:
        CannotPredictError: it cannot be run again, or that does not give what was measured; the sentence says why.
    """
    recorded = frames if isinstance(frames, Recorded) else Recorded.of(frames)
    workload = workload_of(recorded, assumed)
    outcome = simulate(workload)
    return Window(workload, tuple(check(workload, outcome)), outcome)


def answer(window: Window, changes: Sequence[Change]) -> Answer:
    """What ``changes`` would give.

    Raises:
        OptionError: a name is not known in this recording.
        CannotPredictError: calls would wait for ever.
    """
    before = result_of(window.workload, window.unchanged)
    operations: dict[str, Figures] = {
        name: figures_of(some, window.unchanged.span_ns) for name, some in measured(window.workload).items()
    }
    before = replace(before, operations=operations)
    if not changes:
        return Answer((), window, before, before)
    other = changed(window.workload, changes)
    after = result_of(other, simulate(other))
    if after.unended:
        raise CannotPredictError(
            f"With {', '.join(map(str, changes))} {after.unended:,} calls would wait for ever for a place that nobody "
            "gives back. The simulation does not know enough of what they hold; leave one of the changes out."
        )
    return Answer(tuple(changes), window, before, after)
