"""Tools that hold the event loop for long at a stretch: `blocking-call` and `cpu-bound-step`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from mcp_probe.aggregate import advice, phrasing
from mcp_probe.aggregate.checks.backends import made_per_request
from mcp_probe.aggregate.checks.error_logs import error_logs, is_formatting
from mcp_probe.aggregate.checks.evidence import (
    OWN_CAUSES,
    Victims,
    are_victims_seen,
    busy_ms,
    is_import,
    is_slow_blocker,
    slow_steps,
    step_total_ms,
    steps_cost_ms,
    victims_of,
)
from mcp_probe.aggregate.checks.first_calls import are_of_first_calls
from mcp_probe.aggregate.checks.loop_calls import loop_calls, many_blocking_calls
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.slow_steps import IMPORT
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import LOOP_OPERATION, WITHOUT_GIL, Cause, Finding, GuiltyPlace, Severity, SlowStep, Summary, Tag

Line = tuple[str | int | None, ...]
"""File and line of a step; its cause, where nobody knows them."""

_DID: dict[Cause, str] = {
    "blocking-call": "blocked",
    "cpu": "computing",
    "unknown": "of unknown cause",
}


def blocking_call(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per tool with lines whose slow steps were mostly off the CPU, or of unknown cause.

    And one per backend that tools ask in many short calls on the loop, unless their slow steps say so already.
    """
    found = loop_calls(summary, options)
    told = set()
    for tool, steps in _by_tool(summary, options, ("blocking-call", "unknown")):
        is_unknown = all(step.cause == "unknown" for step in steps)
        did = "held" if is_unknown else "blocked"
        asides = ["why is not known"] if is_unknown else []
        finding = _finding("blocking-call", summary, options, tool, steps, did, asides)
        text = advice.off_the_loop(summary, options, tool, steps[0])
        if is_unknown:
            text = f"If it waits there for something: {text[0].lower()}{text[1:]} If it computes: use a process pool."
        if finding.severity == "info" and any(calls.operation.name == tool for calls in found):
            continue
        told.add(tool)
        yield replace(finding, advice=text)
    yield from many_blocking_calls(summary, options, found, told)


def cpu_bound_step(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per tool with lines whose slow steps were mostly computing."""
    for tool, steps in _by_tool(summary, options, ("cpu",)):
        share = _cpu_share(steps)
        asides = [] if share is None else [f"{phrasing.percent(share)} CPU"]
        finding = _finding("cpu-bound-step", summary, options, tool, steps, "computed on", asides)
        yield replace(finding, advice=advice.compute_elsewhere(summary, options, tool, steps[0]))
    yield from _imports(summary, options)


def _imports(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding for all modules that were imported on the loop: each costs its first caller, and nobody else."""
    steps = [step for step in slow_steps(summary, options, get_args(Cause)) if is_import(step)]
    is_harmful = _is_harmful(summary, options, LOOP_OPERATION)
    steps = [step for step in steps if step.tool != LOOP_OPERATION or (is_harmful and not _is_start(step))]
    if not steps:
        return
    steps.sort(key=lambda step: -step.ms)
    first, victims = steps[0], victims_of(summary, steps[0].tool)
    others = f"; so did {phrasing.plural(len(steps) - 1, 'more import')}" if len(steps) > 1 else ""
    yield Finding(
        code="cpu-bound-step",
        severity="warn" if first.ms >= options.cold_ms else "info",
        confidence=_confidence(steps, victims),
        subject=first.tool,
        sentence=f"The first call of {phrasing.object_of(first.tool)} {_import_of(first)}{others}.",
        advice="No later call pays for it: import it when the server starts, or call the tool once in its lifespan.",
        evidence={
            "max_ms": first.ms,
            "total_ms": step_total_ms(steps),
            "count": sum(step.count for step in steps),
            "cause": first.cause,
            "file": first.file,
            "line": first.line,
            "function": first.function,
            "library": first.library,
        },
        cost_ms=steps_cost_ms(summary, steps),
        places=tuple(map(_imported_at, steps)) if len(steps) > 1 else (),
    )


def _imported_at(step: SlowStep) -> GuiltyPlace:
    where = _line_of(step)
    what = f"first call of {phrasing.object_of(step.tool)}: import of `{(step.library or '').removeprefix(IMPORT)}`"
    return GuiltyPlace(where, step.quality if where else "unavailable", what, step_total_ms([step]), step.count)


def _import_of(step: SlowStep) -> str:
    place = phrasing.place_of(step.file, step.line)
    where = "" if place is None else f" ({place})"
    module = (step.library or "").removeprefix(IMPORT)
    return f"held the event loop for {phrasing.duration(step.ms)}: import of `{module}`{where}"


def _by_tool(
    summary: Summary, options: FindingOptions, causes: Iterable[Cause]
) -> Iterator[tuple[str, list[SlowStep]]]:
    """Steps of each tool at lines that lost most of their time to ``causes``: the line that lost most comes first.

    Of a line the longest step is first. Steps whose line nobody saw come last. A line belongs to one finding, whatever
    else its other steps did. Work of no request counts only where it did harm: every server has long steps before its
    first request. What formats the tracebacks of a tool has a finding of its own where that is slow, and so has what
    makes its clients, where they are made for each request. Steps of unknown cause in a tool that waited longer for the
    GIL are most likely the same.
    """
    logging = {logs.operation.name for logs in error_logs(summary, options)}
    steps = [step for step in slow_steps(summary, options, OWN_CAUSES) if not is_import(step) and not _is_start(step)]
    clients = made_per_request(summary, options)
    steps = [step for step in steps if step.tool not in logging or not is_formatting(step)]
    steps = [step for step in steps if step.tool not in clients or not advice.is_of_client(step)]
    for_gil = slow_steps(summary, options, ("gil",))
    for tool in dict.fromkeys(step.tool for step in steps):
        if tool == LOOP_OPERATION and not _is_harmful(summary, options, tool):
            continue
        lines: dict[Line, list[SlowStep]] = {}
        for step in steps:
            if step.tool == tool:
                lines.setdefault(_line(step), []).append(step)
        unknown = [line for line, of_line in lines.items() if {step.cause for step in of_line} == {"unknown"}]
        gil_ms = step_total_ms([step for step in for_gil if step.tool == tool])
        if sum(step_total_ms(lines[line]) for line in unknown) < gil_ms:
            lines = {line: of_line for line, of_line in lines.items() if line not in unknown}
        mostly = [of_line for of_line in lines.values() if _causes(of_line)[0][0] in causes]
        if mostly:
            mostly = [sorted(of_line, key=lambda step: -step.ms) for of_line in mostly]
            mostly.sort(key=lambda of_line: (not of_line[0].file, -step_total_ms(of_line), -of_line[0].ms))
            yield tool, [step for of_line in mostly for step in of_line]


def _line(step: SlowStep) -> Line:
    return (step.file, step.line) if step.file else (step.cause,)


def _causes(steps: Iterable[SlowStep]) -> list[tuple[Cause, float]]:
    """What ``steps`` lost time to, with the time, the most first."""
    lost: dict[Cause, float] = {}
    for step in steps:
        lost[step.cause] = lost.get(step.cause, 0.0) + step_total_ms([step])
    return sorted(lost.items(), key=lambda item: (-item[1], item[0]))


def _shares(steps: Sequence[SlowStep]) -> dict[Cause, float]:
    """Causes of ``steps`` as shares of their time, the largest first."""
    whole = step_total_ms(steps)
    return {cause: ms / whole for cause, ms in _causes(steps)} if whole > 0 else {}


def _is_harmful(summary: Summary, options: FindingOptions, tool: str) -> bool:
    """Somebody waited for ``tool``, and for its slow steps rather than for many short ones."""
    if tool == LOOP_OPERATION:
        summary = _started(summary)
    return victims_of(summary, tool).count > 0 and is_slow_blocker(summary, tool, options)


def _started(summary: Summary) -> Summary:
    """Without what the server did before it had answered anything: on stdio a handshake may come meanwhile and wait."""
    later = tuple(step for step in summary.slow_steps if not _is_start(step))
    start_ms = step_total_ms(summary.slow_steps) - step_total_ms(later)
    signals = replace(summary.signals, busy_ms=max(0.0, summary.signals.busy_ms - start_ms))
    return replace(summary, slow_steps=later, signals=signals)


def _is_start(step: SlowStep) -> bool:
    return step.tool == LOOP_OPERATION and step.starts == step.count


def _finding(
    code: str,
    summary: Summary,
    options: FindingOptions,
    tool: str,
    steps: list[SlowStep],
    did: str,
    asides: list[str],
) -> Finding:
    first, longest_ms, victims = steps[0], max(step.ms for step in steps), victims_of(summary, tool)
    is_harmful, cost_ms = _is_harmful(summary, options, tool), steps_cost_ms(summary, steps)
    count = sum(step.count for step in steps)
    is_running = any(step.running for step in steps)
    shares = _shares(steps)
    told = [f"{phrasing.percent(share)} {_DID[cause]}" for cause, share in shares.items() if share >= 0.01]
    places = _places(steps)
    asides = [phrasing.times(count), *(asides if len(told) < 2 else told), *_where(steps, places)]
    queued_ms = sum(step.run_queue_ms or 0.0 for step in steps)
    if queued_ms >= options.run_queue_share * step_total_ms(steps):
        asides.append(f"without {phrasing.duration(queued_ms)} in which it had no CPU")
    if is_running:
        asides.append(
            "still running when the window ended" if count == 1 else "one still running when the window ended"
        )
    span = phrasing.duration(longest_ms)
    sentence = f"{phrasing.subject_of(tool)} {did} the event loop for {'' if count == 1 else 'up to '}{span}"
    sentence += f" ({', '.join(asides)})"
    return Finding(
        code=code,
        severity=_severity(summary, options, tool, steps, is_harmful),
        confidence=_confidence(steps, victims),
        subject=tool,
        sentence=f"{sentence}{_victims(summary, options, tool, steps, victims, is_harmful)}.",
        advice="",
        evidence={
            "max_ms": longest_ms,
            "p50_ms": first.p50_ms or first.ms,
            "total_ms": step_total_ms(steps),
            "count": count,
            "cause": _causes(steps)[0][0],
            "causes": ", ".join(f"{cause} {phrasing.percent(share)}" for cause, share in shares.items()),
            "cpu_share": _cpu_share(steps),
            "run_queue_ms": queued_ms,
            "file": first.file,
            "line": first.line,
            "function": first.function,
            "library": first.library,
            "places": len({(step.file, step.line) for step in steps}),
            "still_running": int(is_running),
            "victims": victims.count,
            "victim_ms": victims.lo_ms,
            "victim_hi_ms": victims.hi_ms,
        },
        cost_ms=cost_ms,
        places=places,
    )


def _severity(
    summary: Summary,
    options: FindingOptions,
    tool: str,
    steps: Sequence[SlowStep],
    is_harmful: bool,
) -> Severity:
    """By length, and by what clients waited.

    ``info`` below the critical length for one step, a few among many short ones, or steps of unknown cause, if nobody
    waited for them; and for what only first calls do, if it is no cold start.
    """
    longest_ms, count = max(step.ms for step in steps), sum(step.count for step in steps)
    if longest_ms < options.cold_ms and are_of_first_calls(summary, options, tool, longest_ms, count):
        return "info"
    if longest_ms >= options.critical_step_ms:
        return "critical"
    few = count == 1 or step_total_ms(steps) < options.surroundings_share * busy_ms(summary, tool)
    is_unknown = all(step.cause == "unknown" for step in steps)
    return "info" if (few or is_unknown) and not is_harmful else "warn"


def _confidence(steps: Iterable[SlowStep], victims: Victims) -> Tag:
    """A place that is not known is not told, so it does not count."""
    tags: list[Tag] = [victims.quality]
    for step in steps:
        if step.file:
            tags.append("estimate" if step.quality == "unavailable" else step.quality)
        if step.cause == "unknown":
            tags.append("estimate")
        if step.running:
            tags.append("lower")
    return worst(tags)


def _cpu_share(steps: Sequence[SlowStep]) -> float | None:
    """Share of the steps' wall time, over those whose CPU time is known."""
    known = [(step, step.cpu_share) for step in steps if step.cpu_share is not None]
    wall = step_total_ms(step for step, _ in known)
    return min(1.0, sum(step_total_ms([step]) * share for step, share in known) / wall) if wall > 0 else None


def _where(steps: Sequence[SlowStep], places: Sequence[GuiltyPlace]) -> list[str]:
    """The place of most of the time. If there are several, the rest of what is known of it stands in their rows."""
    first = steps[0]
    place = phrasing.place_of(first.file, first.line)
    if place is None:
        return []
    text = f"{'at' if first.quality == 'exact' else 'probably at'} {place}"
    if places:
        most = "most of it" if places[0].where else "most of what was seen"
        return [f"{most} {text}"]
    return [" ".join(filter(None, (text, _doing(first))))]


def _doing(step: SlowStep) -> str:
    """``in `f` calling `g` ``, as far as that is not the tool itself, and known."""
    function = (step.function or "").rsplit(".", 1)[-1]
    inside = f"in `{function}`" if function and function != step.tool else ""
    calling = f"calling `{step.library.removesuffix(WITHOUT_GIL)}`" if step.library else ""
    return " ".join(filter(None, (inside, calling)))


def _places(steps: Sequence[SlowStep]) -> tuple[GuiltyPlace, ...]:
    """One for each line, and one for all whose line nobody saw; none where all were at one."""
    lines: dict[str | None, list[SlowStep]] = {}
    for step in steps:
        lines.setdefault(_line_of(step), []).append(step)
    found = [_place(where, of_line) for where, of_line in lines.items()]
    return tuple(sorted(found, key=lambda place: -place.ms)) if len(found) > 1 else ()


def _line_of(step: SlowStep) -> str | None:
    return step.file if step.file is None or step.line is None else f"{step.file}:{step.line}"


def _place(where: str | None, steps: Sequence[SlowStep]) -> GuiltyPlace:
    longest = max(steps, key=lambda step: step.ms)
    return GuiltyPlace(
        where=where,
        quality=worst(step.quality for step in steps) if where else "unavailable",
        what=_doing(longest) if where else "",
        ms=step_total_ms(steps),
        count=sum(step.count for step in steps),
    )


def _victims(
    summary: Summary, options: FindingOptions, tool: str, steps: list[SlowStep], victims: Victims, is_harmful: bool
) -> str:
    """Who waited. The matrix knows the tool and not the step, so steps that others held it with are counted here."""
    if not victims.count:
        if are_victims_seen(summary):
            return " and held up no other request"
        return "; it cannot be seen here whether others waited for it before they were handled"
    requests = phrasing.plural(victims.count, "other request")
    waited = f"{phrasing.known(victims.lo_ms, victims.quality)}{' in all' if victims.count > 1 else ''}"
    if not is_harmful:
        return f"; {requests} waited {waited} for its steps, most of which are shorter"
    if victims.count > 1:
        waited += f", {phrasing.duration(victims.lo_ms / victims.count)} each on average"
    of_tool = slow_steps(summary, options, get_args(Cause))
    others = sum(step.count for step in of_tool if step.tool == tool and step not in steps)
    if others:
        return f"; with {phrasing.plural(others, 'other slow step')} it made {requests} wait {waited}"
    return f" and made {requests} wait {waited}"
