"""Time the loop lost to something beneath the tools: `gc-pause`, `gil-contention`, `own-threads`, `host-pressure`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import (
    is_enough,
    is_little,
    queued_ms,
    slow_steps,
    step_total_ms,
    steps_cost_ms,
    window_ms,
)
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import ExecutorSummary, Finding, Signals, SlowStep, Summary


def gc_pause(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Long pauses in one second, or in one request. What the host added to them does not count."""
    signals = summary.signals
    stretched = min(signals.gc_stretched_ms or 0.0, signals.gc_pause_ms)
    total = signals.gc_pause_ms - stretched
    share = (signals.gc_worst_request_share or 0.0) * (total / signals.gc_pause_ms if stretched > 0 else 1.0)
    if stretched > 0 and total < options.slow_step_ms:
        share = 0.0
    is_long = signals.gc_worst_second_ms > options.gc_second_ms
    is_certain = is_enough(summary, options) or signals.gc_max_pause_ms >= options.critical_step_ms
    if not is_long and not (share > options.gc_request_share and is_certain):
        return
    generation = signals.gc_max_generation
    longest = f"longest pause {phrasing.duration(signals.gc_max_pause_ms)}"
    if generation is not None:
        longest += f", generation {generation}"
    what = f"for {phrasing.duration(signals.gc_worst_second_ms)} within one second"
    if not is_long:
        what = f"for {phrasing.percent(share)} of one request's time"
    cost = max(total, steps_cost_ms(summary, slow_steps(summary, options, ("gc",))))
    yield Finding(
        code="gc-pause",
        severity="info" if total < options.gc_total_ms or _is_minor(summary, options, cost) else "warn",
        confidence="estimate" if stretched > 0 and not is_long else "exact",
        subject=summary.server.name,
        sentence=f"The garbage collector stopped the server {what} ({longest}; {phrasing.duration(total)} in all).",
        advice=(
            "Call `gc.collect()` and `gc.freeze()` once after start-up, so that long-lived objects are not looked at "
            "again; then make fewer objects that refer to each other in cycles."
        ),
        evidence={
            "worst_second_ms": signals.gc_worst_second_ms,
            "worst_request_share": None if signals.gc_worst_request_share is None else share,
            "max_pause_ms": signals.gc_max_pause_ms,
            "generation": generation,
            "total_ms": total,
            "stretched_ms": stretched,
        },
        cost_ms=cost,
    )


# --- GIL --------------------------------------------------------------------------------------------


def gil_contention(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The loop's thread waited for the GIL while other threads ran."""
    signals, steps = summary.signals, slow_steps(summary, options, ("gil",))
    lost = signals.gil_wait_ms
    if lost is None or signals.busy_ms <= 0:
        lost = _off_cpu_ms(steps)
    if not _is_loss(summary, options, lost, options.gil_share, steps):
        return
    share = _share(lost, signals.busy_ms)
    burned, pool = signals.other_threads_cpu_ms, _busiest_pool(summary)
    sentence = "Other threads kept the event loop waiting for the GIL for about "
    sentence += f"{phrasing.duration(lost)}{_of_busy(share)}"
    if burned:
        sentence += f"; they used {phrasing.duration(burned)} of CPU"
        if pool is not None:
            sentence += f", mostly {phrasing.listed(pool.holders) or 'jobs'} in `{pool.name}`"
    cost = max(lost, steps_cost_ms(summary, steps))
    # Much of either is enough, unlike with the host: these are the server's own threads.
    is_minor = is_little(summary, options, cost) and cost < options.surroundings_share * window_ms(summary)
    yield Finding(
        code="gil-contention",
        severity="info" if is_minor else "warn",
        confidence="estimate",
        subject=summary.server.name,
        sentence=f"{sentence}.",
        advice="Move that work into a process pool, or run the server on a free-threaded build of Python.",
        evidence={
            "gil_wait_ms": lost,
            "busy_share": share,
            "busy_ms": signals.busy_ms,
            "other_threads_cpu_ms": burned,
            "pool": None if pool is None else pool.name,
            "pool_cpu_ms": None if pool is None else pool.cpu_ms,
            "holders": None if pool is None else ", ".join(pool.holders),
            **_worst_step(steps),
        },
        cost_ms=cost,
    )


def _busiest_pool(summary: Summary) -> ExecutorSummary | None:
    """The pool whose jobs used most CPU, if that is known and not nothing."""
    busy = [pool for pool in summary.executors if (pool.cpu_ms or 0.0) > 0]
    return max(busy, key=lambda pool: pool.cpu_ms or 0.0, default=None)


# --- CPUs -------------------------------------------------------------------------------------------


def own_threads(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The loop's thread could run and had no CPU, because other threads of the process had them."""
    signals = summary.signals
    queued = _queued_ms(signals, ())
    if not _is_its_own(signals, options) or not _is_loss(summary, options, queued, options.run_queue_share, ()):
        return
    share, pool = _share(queued, signals.busy_ms), _busiest_pool(summary)
    used = signals.queued_beside_cpus or 0.0
    who = "" if pool is None else f", mostly {phrasing.listed(pool.holders) or 'jobs'} in `{pool.name}`"
    yield Finding(
        code="own-threads",
        severity="warn",
        confidence="upper",
        subject=summary.server.name,
        sentence=(
            f"The server's own threads kept the event loop waiting for a CPU for {phrasing.duration(queued)}"
            f"{_of_busy(share)}: meanwhile they used {used:.1f} of its {signals.cpus or 0.0:.3g} CPUs{who}."
        ),
        advice=(
            "Let fewer of them compute at once (a pool with fewer threads than CPUs), move the work into processes of "
            "lower priority, or use a bigger machine. No other process took these CPUs."
        ),
        evidence={
            "run_queue_ms": queued,
            "busy_share": share,
            "busy_ms": signals.busy_ms,
            "used_cpus": used,
            "cpus": signals.cpus,
            "other_threads_cpu_ms": signals.other_threads_cpu_ms,
            "pool": None if pool is None else pool.name,
            "pool_cpu_ms": None if pool is None else pool.cpu_ms,
            "holders": None if pool is None else ", ".join(pool.holders),
        },
        cost_ms=queued,
    )


def _is_its_own(signals: Signals, options: FindingOptions) -> bool:
    """While the loop waited for a CPU, other threads of the process used at least half of what it may use."""
    used, cpus = signals.queued_beside_cpus, signals.cpus
    return used is not None and cpus is not None and used >= options.own_threads_share * cpus


def host_pressure(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The loop's thread could run and had no CPU, or the CPU limit stopped the process.

    What the process's own threads took is `own-threads`. Steps that are slow without that wait have a finding of their
    own: this one absolves nobody.
    """
    signals, steps = summary.signals, slow_steps(summary, options, ("run-queue",))
    queued, throttled = _queued_ms(signals, steps), signals.throttled_ms or 0.0
    is_queued = not _is_its_own(signals, options) and _is_loss(summary, options, queued, options.run_queue_share, steps)
    is_throttled = throttled > options.throttled_ms
    if not is_queued and not is_throttled:
        return
    sentences = []
    if is_queued:
        share = _share(queued, signals.busy_ms)
        sentences.append(f"The event loop waited {phrasing.duration(queued)} for a CPU of the host{_of_busy(share)}.")
    if is_throttled:
        sentences.append(f"The CPU limit of its control group stopped the server for {phrasing.duration(throttled)}.")
    if steps:
        worst_step = max(steps, key=lambda step: step.ms)
        own = "" if worst_step.own_ms is None else f", {phrasing.duration(worst_step.own_ms)} by itself"
        slowed = f"a step of {phrasing.object_of(worst_step.tool)}{own}, to {phrasing.duration(worst_step.ms)}"
        sentences.append(f"That stretched {slowed}.")
    cost = max((queued if is_queued else 0.0) + throttled, steps_cost_ms(summary, steps))
    is_minor = _is_minor(summary, options, cost)
    yield Finding(
        code="host-pressure",
        severity="info" if is_minor else "warn",
        confidence="upper" if is_queued else "exact",
        subject=summary.server.name,
        sentence=" ".join(sentences),
        advice=(
            "Other processes ran on this machine meanwhile. It cost little of this run."
            if is_minor
            else "Give the server more CPU (a higher limit, fewer neighbours on this machine), and do not judge its "
            "times by this run. What else was found holds: steps are judged without this wait."
        ),
        evidence={
            "run_queue_ms": queued,
            "busy_share": _share(queued, signals.busy_ms),
            "busy_ms": signals.busy_ms,
            "throttled_ms": signals.throttled_ms,
            "cpu_pressure_percent": signals.cpu_pressure,
            **_worst_step(steps),
        },
        cost_ms=cost,
    )


def _queued_ms(signals: Signals, steps: Sequence[SlowStep]) -> float:
    """At most this much of the busy time was spent in the run queue; where the kernel does not say, in slow steps."""
    queued = queued_ms(signals)
    return _off_cpu_ms(steps) if queued is None else queued


# --- shared -----------------------------------------------------------------------------------------


def _is_minor(summary: Summary, options: FindingOptions, cost_ms: float) -> bool:
    """True of the host or the collector, but too little of the window, or of what clients waited, to be why."""
    return is_little(summary, options, cost_ms) or cost_ms < options.surroundings_share * window_ms(summary)


def _is_loss(
    summary: Summary, options: FindingOptions, lost_ms: float, threshold: float, steps: Sequence[SlowStep]
) -> bool:
    """More than ``threshold`` of the busy time, and enough to matter or in one step long enough to be certain."""
    busy = max(summary.signals.busy_ms, step_total_ms(steps))
    if lost_ms <= 0 or lost_ms <= threshold * busy:
        return False
    if any(step.ms >= options.critical_step_ms for step in steps):
        return True
    return is_enough(summary, options) and lost_ms >= options.window_share * window_ms(summary)


def _off_cpu_ms(steps: Sequence[SlowStep]) -> float:
    return sum(step_total_ms([step]) * (1.0 - min(1.0, step.cpu_share or 0.0)) for step in steps)


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None


def _of_busy(share: float | None) -> str:
    return "" if share is None else f", {phrasing.percent(share)} of its busy time"


def _worst_step(steps: Sequence[SlowStep]) -> dict[str, float | int | str | None]:
    """The longest of ``steps`` as evidence; nothing where there is none."""
    if not steps:
        return {}
    step = max(steps, key=lambda step: step.ms)
    return {"step_tool": step.tool, "step_ms": step.ms, "step_file": step.file, "step_line": step.line}
