"""Changes to a workload: what would be if its code, its pools or its clients were other. Each gives a new workload."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mcp_probe.errors import OptionError
from mcp_probe.model import DEFAULT_LIMITER
from mcp_probe.predict.change import Change, Kind
from mcp_probe.predict.gather import gathered
from mcp_probe.predict.workload import (
    DELAY,
    HOLD,
    JOB,
    RELEASE,
    SUBMIT,
    Act,
    Call,
    Resource,
    Step,
    Unit,
    Work,
    Workload,
)

BLOCKING_NS = 1_000_000
"""A step this long is worth a thread: the hop there and back costs a tenth of it."""

_DEFAULT_THREADS = 40
"""Of ``anyio.to_thread.run_sync``. Source: anyio 4, ``current_default_thread_limiter``."""

_MOST_PARTS = 1_000


def changed(workload: Workload, changes: Iterable[Change]) -> Workload:
    """``workload`` with all of ``changes``.

    Raises:
        OptionError: a name is not known here, or the change finds nothing to change; the sentence says what is known.
    """
    for change in changes:
        workload = _CHANGES[change.kind](workload, change)
    return workload


# --- names --------------------------------------------------------------------------------------------


def operations(workload: Workload) -> list[str]:
    """Of the requests that somebody waited for."""
    return sorted({call.operation for call in workload.calls if call.took_ns is not None})


def _calls_of(workload: Workload, change: Change) -> str:
    known = operations(workload)
    if change.subject in known:
        return change.subject
    raise OptionError(f"{change}: no operation of the recording is called so. It has {', '.join(known)}.")


def _resource(workload: Workload, change: Change, kinds: Sequence[str], what: str) -> int:
    """The number of the one that is called so, or that alone has the text in its name."""
    some = [(number, one.name) for number, one in enumerate(workload.resources) if one.kind in kinds]
    found = [number for number, name in some if name == change.subject]
    found = found or [number for number, name in some if change.subject and change.subject.lower() in name.lower()]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"`{name}`" for _, name in some) or "none: nobody waited for one"
    problem = "is called so" if not found else "alone is called so"
    raise OptionError(f"{change}: no {what} {problem}. The recording has {known}. A part of a name is enough.")


# --- what calls do ------------------------------------------------------------------------------------


def _of_operation(workload: Workload, operation: str, change: Callable[[Call], Call]) -> tuple[Call, ...]:
    return tuple(change(call) if call.operation == operation else call for call in workload.calls)


def _offload(workload: Workload, change: Change) -> Workload:
    operation = _calls_of(workload, change)
    workload, pool = _default_pool(workload)
    found = [0]

    def moved(call: Call) -> Call:
        jobs = list(call.jobs)
        units = []
        for unit in call.units:
            steps: list[Step] = []
            for step in unit:
                if step.run_ns < BLOCKING_NS:
                    steps.append(step)
                    continue
                found[0] += 1
                steps += _on_thread(step, len(jobs), workload.step_ns)
                jobs.append(_work_of(step, pool, workload))
            units.append(tuple(steps))
        return replace(call, units=tuple(units), jobs=tuple(jobs))

    calls = _of_operation(workload, operation, moved)
    if not found[0]:
        raise OptionError(f"{change}: no step of `{operation}` took {BLOCKING_NS / 1e6:g} ms: none is worth a thread.")
    return replace(workload, calls=calls)


def _default_pool(workload: Workload) -> tuple[Workload, int]:
    for number, one in enumerate(workload.resources):
        if one.name == DEFAULT_LIMITER:
            return workload, number
    more = (*workload.resources, Resource(DEFAULT_LIMITER, "threads", _DEFAULT_THREADS))
    return replace(workload, resources=more), len(more) - 1


def _on_thread(step: Step, job: int, rest_ns: int) -> list[Step]:
    """A short step that submits, and a short one that goes on with what the thread gave."""
    rest = min(rest_ns, step.run_ns // 2) // 2
    first = step._replace(run_ns=rest, ends=((SUBMIT, job),), cpu_ns=-1, is_free=False, idle_ns=0, gc_ns=0)
    return [first, Step(JOB, job, rest, ends=step.ends)]


def _work_of(step: Step, pool: int, workload: Workload) -> Work:
    moved = step.run_ns - 2 * (min(workload.step_ns, step.run_ns // 2) // 2)
    # Where CPU time was not read, the step is taken to compute: a thread does not help then, which promises nothing.
    cpu = moved if step.cpu_ns < 0 else min(moved, step.cpu_ns)
    cpu = cpu if cpu >= 0.05 * moved else 0
    hop = workload.hop_ns // 2
    if step.is_free:
        return Work(pool, hop, moved - cpu, 0, hop, claims=True, free_ns=cpu)
    parts = max(1, min(step.stops, _MOST_PARTS)) if cpu else 1
    return Work(pool, hop, moved - cpu, cpu, hop, claims=True, parts=parts)


def _private_pool(workload: Workload, change: Change) -> Workload:
    operation = _calls_of(workload, change)
    own = len(workload.resources)
    if not any(call.jobs for call in workload.calls if call.operation == operation):
        raise OptionError(f"{change}: `{operation}` runs nothing on threads. --offload {operation} comes before.")
    pools = {job.pool for call in workload.calls if call.operation == operation for job in call.jobs}

    def moved_act(act: Act) -> Act:
        return (RELEASE, own) if act[0] == RELEASE and act[1] in pools else act

    def moved_step(step: Step) -> Step:
        held = step.after == HOLD and step.arg in pools
        begins, ends = tuple(map(moved_act, step.begins)), tuple(map(moved_act, step.ends))
        return step._replace(arg=own if held else step.arg, begins=begins, ends=ends)

    def moved(call: Call) -> Call:
        jobs = tuple(job._replace(pool=own) for job in call.jobs)
        return replace(call, jobs=jobs, units=tuple(tuple(map(moved_step, unit)) for unit in call.units))

    pool = Resource(f"threads of {operation} only", "threads", int(change.value))
    return replace(workload, resources=(*workload.resources, pool), calls=_of_operation(workload, operation, moved))


def _gather(workload: Workload, change: Change) -> Workload:
    operation = _calls_of(workload, change)
    calls = _of_operation(workload, operation, gathered)
    if calls == workload.calls:
        raise OptionError(f"{change}: no call of `{operation}` awaits alike things one after the other.")
    return replace(workload, calls=calls)


def _share_client(workload: Workload, change: Change) -> Workload:
    operation = _calls_of(workload, change)

    def moved(call: Call) -> Call:
        return replace(call, units=tuple(_without_client(unit, workload.step_ns) for unit in call.units))

    calls = _of_operation(workload, operation, moved)
    if calls == workload.calls:
        raise OptionError(f"{change}: no call of `{operation}` was seen to open a connection.")
    before, after = (_run_ns(each, operation) for each in (workload.calls, calls))
    gone = 1 - after / max(1, before)  # of what its calls ran, and so of the garbage that they made

    def cleaner(call: Call) -> Call:
        units = (
            tuple(step._replace(run_ns=max(0, step.run_ns - int(gone * step.gc_ns))) for step in unit)
            for unit in call.units
        )
        return replace(call, units=tuple(units))

    return replace(workload, calls=_of_operation(replace(workload, calls=calls), operation, cleaner))


def _without_client(unit: Unit, step_ns: int) -> Unit:
    opens = [index for index, step in enumerate(unit) if step.about.startswith("connect ")]
    if not opens:
        return unit
    made = max(range(opens[0]), key=lambda index: unit[index].run_ns, default=-1)
    steps = []
    for index, step in enumerate(unit):
        if index == made and step.run_ns >= BLOCKING_NS:
            step = step._replace(run_ns=step_ns, idle_ns=0, gc_ns=0)
        if index in opens:
            step = step._replace(after=DELAY, arg=0, late_ns=0)
        steps.append(step)
    return tuple(steps)


def _run_ns(calls: Iterable[Call], operation: str) -> int:
    """What the calls of ``operation`` ran on the loop, without the garbage collector."""
    return sum(
        step.run_ns - step.gc_ns
        for call in calls
        if call.operation == operation
        for unit in call.units
        for step in unit
    )


def _speed_up(workload: Workload, change: Change) -> Workload:
    operation, keep = _calls_of(workload, change), 1 - change.value

    def faster(step: Step) -> Step:
        arg = int(step.arg * keep) if step.after == DELAY else step.arg
        cpu = step.cpu_ns if step.cpu_ns < 0 else int(step.cpu_ns * keep)
        idle = int(step.idle_ns * keep)
        return step._replace(run_ns=int(step.run_ns * keep), arg=arg, cpu_ns=cpu, idle_ns=idle)

    def moved(call: Call) -> Call:
        jobs = tuple(
            job._replace(
                outside_ns=int(job.outside_ns * keep),
                cpu_ns=int(job.cpu_ns * keep),
                free_ns=int(job.free_ns * keep),
            )
            for job in call.jobs
        )
        return replace(call, jobs=jobs, units=tuple(tuple(map(faster, unit)) for unit in call.units))

    return replace(workload, calls=_of_operation(workload, operation, moved))


# --- what calls share ---------------------------------------------------------------------------------


def _pool(workload: Workload, change: Change) -> Workload:
    number = _resource(workload, change, ("threads", "places"), "pool")
    resources = list(workload.resources)
    resources[number] = replace(resources[number], limit=int(change.value))
    return replace(workload, resources=tuple(resources))


def _narrow(workload: Workload, change: Change) -> Workload:
    number = _resource(workload, change, ("lock", "places"), "lock")
    calls = tuple(replace(call, units=tuple(_narrowed(unit, number) for unit in call.units)) for call in workload.calls)
    return replace(workload, calls=calls)


def _narrowed(unit: Unit, number: int) -> Unit:
    """Without the lock: held for one step at a time it keeps nobody waiting, for steps never run beside each other."""
    steps: list[Step] = []
    for step in unit:
        ends = tuple(act for act in step.ends if act != (RELEASE, number))
        if step.after == HOLD and step.arg == number and steps:
            last = steps[-1]
            steps[-1] = last._replace(run_ns=last.run_ns + step.run_ns, ends=(*last.ends, *step.begins, *ends))
        else:
            steps.append(step._replace(ends=ends))
    return tuple(steps)


# --- what clients do ----------------------------------------------------------------------------------


def _rate(workload: Workload, change: Change) -> Workload:
    factor = change.value
    if not workload.is_closed:
        calls = tuple(replace(call, sent_ns=int(call.sent_ns / factor)) for call in workload.calls)
        background = tuple((int(at / factor), run) for at, run in workload.background)
        return replace(workload, calls=calls, background=background)
    if factor < 1:
        raise OptionError(f"{change}: clients wait for answers here, and a part of a client cannot be left out.")
    return replace(workload, calls=_more_clients(workload.calls, factor))


def _more_clients(calls: Sequence[Call], factor: float) -> tuple[Call, ...]:
    """Each client as often as ``factor`` says: a copy of a call waits for the copies of what the call waited for.

    A copy does what another call of its operation did, else all clients would have the same bad luck at once.
    """
    alike: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        alike[call.operation].append(call)
    nth: Counter[str] = Counter()
    copies: dict[int, list[int]] = defaultdict(list)
    found: list[Call] = []
    due = 0.0
    for position, call in enumerate(calls):
        count = 1
        if call.took_ns is not None:
            due += factor
            count = max(1, int(due))
            due -= count
        others, at = alike[call.operation], nth[call.operation]
        nth[call.operation] += 1
        for copy in range(count):
            after = tuple(copies[one][min(copy, len(copies[one]) - 1)] for one in call.after)
            copies[position].append(len(found))
            other = others[(at + copy * len(others) // count) % len(others)]
            found.append(replace(other, after=after, sent_ns=call.sent_ns))
    return tuple(found)


_CHANGES: dict[Kind, Callable[[Workload, Change], Workload]] = {
    "offload": _offload,
    "pool": _pool,
    "private-pool": _private_pool,
    "gather": _gather,
    "narrow": _narrow,
    "share-client": _share_client,
    "speed-up": _speed_up,
    "rate": _rate,
}
