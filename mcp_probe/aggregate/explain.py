"""Why requests took as long as they did, in one sentence, from the probe's readings alone.

The functions do not know who sent the requests. They work the same for a bundled workload, a user's server and
a recording. Reasons are ranked by what is certain; a sentence has both ends of what is only bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from mcp_probe.aggregate.bounded import earlier_ns
from mcp_probe.aggregate.checks.awaits import INSIDE
from mcp_probe.aggregate.first_calls import OUTSIDE
from mcp_probe.aggregate.grown import Arm, changed, grown, told
from mcp_probe.aggregate.phrasing import duration, percent, place_of, plural, ranged, subject_of
from mcp_probe.aggregate.seen import (
    MS,
    Ends,
    ends_of,
    handling,
    largest_of,
    mean_of,
    mean_total,
    mean_totals,
    median_of,
    of_time,
    share_of,
    shares_of,
    total_of,
)
from mcp_probe.aggregate.seen import Reason as Reason
from mcp_probe.aggregate.seen import Seen as Seen
from mcp_probe.aggregate.thread_reasons import thread_wait, threads_compute, transport_starved
from mcp_probe.model import CROWDING_OPERATION, LOOP_WAITS

WORTH_SAYING = 0.10
"""A wait below this share of the requests' time explains nothing."""

_SHORT_NS = 5_000_000
_MOST_OF_IT = 0.5
_MOST_SAMPLED = 1.5  # times as long as the requests; longer samples include too much idle time around them
_LATE_FLUSH_NS = 20_000_000
_SLOW_READER_SHARE = 0.3
_LONG_ENCODING_NS = 5_000_000
_WAITS = (*LOOP_WAITS, "executor_wait", "write_wait", "write_flush")
_OWN_PARTS = {
    "awaiting": "awaited something",
    "executor_run": "ran on a thread",
    "busy": "held the event loop",
    "gc": "stood still for the garbage collector",
    "unaccounted": "was where the probe could not look",
}


def explain(seen: Seen, operation: str | None = None) -> str:
    """One sentence on where the time of ``seen``'s requests went; empty where there were none."""
    found = reasons(seen, operation)
    return found[0].sentence if found else ""


def reasons(seen: Seen, operation: str | None = None) -> list[Reason]:
    """What held the requests up, most time first; what they did themselves where nothing held them up."""
    chosen = seen if operation is None else seen.only(operation)
    if not chosen.requests:
        return []
    waits = [reason for look in _LOOKS if (reason := look(chosen)) is not None and reason.share >= WORTH_SAYING]
    return sorted(waits, key=lambda reason: -reason.share) or [_nothing_waited(chosen)]


def what_grew(quick: Seen, slow: Seen, operation: str | None = None) -> str:
    """One sentence on two stretches of time: what the calls of the second took longer for; empty if they did not."""
    arms = [_arm(seen, operation) for seen in (quick, slow)]
    found = grown(*arms) if all(arm.weight for arm in arms) else None
    if found is None:
        return ""
    what = "call" if _are_functions(slow) else "request"
    before, after = duration(found.quick_ms), duration(found.slow_ms)
    return f"A {what} took {after} instead of {before} on average: {told(found, operation)}."


def what_differs(one: Seen, other: Seen, names: tuple[str, str], operation: str | None = None) -> str:
    """One sentence on two servers that did the same: what the slower took longer for; empty if one had no calls."""
    arms = [_arm(seen, operation) for seen in (one, other)]
    if not all(arm.weight for arm in arms):
        return ""
    (quick, quick_name), (slow, slow_name) = sorted(zip(arms, names, strict=True), key=lambda each: each[0].mean_ms)
    slow_took, quick_took = (_fine_words(arm.mean_ms * MS) for arm in (slow, quick))
    took = f"took {slow_took} with {slow_name} and {quick_took} with {quick_name}"
    longer = told(changed(quick, slow), operation)
    return f"A {'call' if _are_functions(other) else 'request'} {took}{longer and ': '}{longer}."


def _arm(seen: Seen, operation: str | None) -> Arm:
    return Arm.of((seen if operation is None else seen.only(operation)).requests, seen.summary.blocked_by)


# --- the loop -------------------------------------------------------------------------------------


def _loop_held(seen: Seen) -> Reason | None:
    """Steps of other requests that the requests waited for while they could have run."""
    victims = {each.name or each.method for each in seen.requests}
    rows = [row for row in seen.summary.blocked_by if row.kind is None and row.victim in victims]
    if not rows:
        return None
    blockers: dict[str, tuple[float, float]] = {}
    for row in rows:
        least, most = blockers.get(row.blocker, (0.0, 0.0))
        blockers[row.blocker] = least + max(row.lo_ms, 0.0), most + row.hi_ms
    blocker, (lost_ms, most_ms) = max(blockers.items(), key=lambda item: item[1])
    share, most_share = _of_the_loop(seen, lost_ms, most_ms)
    if blocker == CROWDING_OPERATION:
        if seen.most_in_flight < 3:
            return None  # no crowd: waking up a sleeping loop takes some time
        ends = share, most_share
        return _starved_of_cpu(seen, ends) or Reason("crowding", share, _crowding_sentence(seen, ends))
    victims_of_it = max((row.victims for row in rows if row.blocker == blocker), default=0)
    slow = max(
        (step for step in seen.summary.slow_steps if step.tool == blocker), key=lambda step: step.ms, default=None
    )
    each = max(1, victims_of_it)
    waited = (
        f"{plural(victims_of_it, 'request')} that could have run waited "
        f"{ranged(lost_ms / each, most_ms / each, duration)} for it on average."
    )
    if slow is not None and slow.cause == "run-queue":
        sentence = f"The machine had no CPU for the event loop for up to {duration(slow.ms)} at a time: {waited}"
        return Reason("no-cpu", share, sentence)
    how = ""
    if slow is not None:
        place = place_of(slow.file, slow.line)
        where = f" at {place}" if place else ""
        inside = f" in {slow.library}" if slow.library else ""
        how = f" for up to {duration(slow.ms)} at a time{inside}{where}"
    return Reason("loop-held", share, f"{subject_of(blocker)} held the event loop{how}: {waited}")


def _of_the_loop(seen: Seen, least_ms: float, most_ms: float) -> Ends:
    """These waits as a share of all requests' time; not more than what their budgets say of waits for the loop."""
    least, most = shares_of(seen, *LOOP_WAITS)
    shortest, longest = mean_totals(seen)
    certain = of_time(seen, least_ms * MS) * (shortest / longest if longest else 1.0)
    possible = of_time(seen, most_ms * MS)
    return min(certain, least), possible if most is None else min(possible, most)


def _starved_of_cpu(seen: Seen, share: Ends) -> Reason | None:
    """The loop's thread waited for a CPU longer than it ran, so the requests did not hold each other up.

    Both are sums over the same samples, so that an idle loop around a short burst does not matter.
    """
    queued_ms, ran_ms = seen.summary.signals.run_queue_ms, seen.summary.signals.loop_cpu_ms
    if queued_ms is None or ran_ms is None or queued_ms <= ran_ms:
        return None
    sentence = (
        f"The machine had no CPU for the event loop: its thread ran {duration(ran_ms)} and waited "
        f"{duration(queued_ms)} to run, so the requests waited {_percent(share)} of their time for a turn."
    )
    return Reason("no-cpu", share[0], sentence)


def _utilization(seen: Seen) -> float | None:
    """Utilization of the loop during the requests; ``None`` if its half-second samples cover mostly other time."""
    utilization = seen.summary.loop.utilization
    if not utilization:
        return None
    sampled_ms = seen.summary.signals.busy_ms / utilization
    lasted_ms = (max(each.end_ns for each in seen.requests) - min(each.arrival_ns for each in seen.requests)) / MS
    return utilization if sampled_ms <= _MOST_SAMPLED * lasted_ms else None


def _crowding_sentence(seen: Seen, share: Ends) -> str:
    utilization = _utilization(seen)
    busy = "" if utilization is None else f", which was busy {percent(utilization)} of the time"
    return (
        f"{plural(seen.most_in_flight, 'request')} in flight shared one event loop{busy}: {_percent(share)} of their "
        "time they waited behind many short steps of each other."
    )


def _loop_queue(seen: Seen) -> Reason | None:
    """The same waits where no single step can be named."""
    if seen.most_in_flight < 3:
        return None  # a request alone waits for its own transport's steps: _stages says how long
    share = shares_of(seen, *LOOP_WAITS)
    held = _loop_held(seen)
    if held is not None and held.share >= _MOST_OF_IT * share[0]:
        return None
    if (starved := _starved_of_cpu(seen, share)) is not None:
        return starved
    utilization = _utilization(seen)
    busy = "" if utilization is None else f" (busy {percent(utilization)} of the time)"
    waited = _duration(mean_of(seen, *LOOP_WAITS))
    sentence = (
        f"With {plural(seen.most_in_flight, 'request')} in flight each waited {waited} for its turn on the event "
        f"loop{busy}, {_percent(share)} of its time."
    )
    return Reason("loop-queue", share[0], sentence)


# --- the way in -----------------------------------------------------------------------------------


def _pipe_wait(seen: Seen) -> Reason | None:
    """Requests that were sent and not yet read; known if the client says when it sent them."""
    known = [(each, each.sent_ns) for each in seen.requests if each.sent_ns is not None]
    if not known:
        return None
    # It may have come earlier than its arrival, so that it waited less.
    waits: list[Ends] = [
        (max(0, each.arrival_ns - earlier_ns(each) - sent), max(0, each.arrival_ns - sent)) for each, sent in known
    ]
    lost = sum(least for least, _ in waits)
    whole = sum(map(total_of, seen.requests)) + lost
    sentence = (
        f"Requests lay unread in the pipe for {_duration(median_of(waits))} at the median, "
        f"{_duration(largest_of(waits))} at worst, before the server took them; no queue of its own counts that."
    )
    return Reason("pipe-wait", lost / whole if whole else 0.0, sentence)


# --- the way out ----------------------------------------------------------------------------------


def _writer_queue(seen: Seen) -> Reason | None:
    """Finished answers that waited for the one writer."""
    waits = [ends_of(each, "write_wait") for each in seen.requests if each.budget.write_wait is not None]
    if not waits:
        return None
    where = "one stdout writer" if seen.summary.server.transport == "stdio" else "connection's writer"
    sentence = (
        f"Finished responses queued {_duration(median_of(waits))} at the {where} at the median, "
        f"{_duration(largest_of(waits))} at worst, with up to {plural(seen.most_in_flight, 'request')} read and not "
        f"yet answered; a handler took {duration(median(map(handling, seen.requests)) / MS)}."
    )
    return Reason("writer-queue", share_of(seen, "write_wait"), sentence)


def _slow_reader(seen: Seen) -> Reason | None:
    """Answers that the client took late; the machine may delay a few. Encoding one comes before that."""
    flushes = [
        _less(ends_of(each, "write_flush"), each.encode_ns or 0)
        for each in seen.requests
        if each.budget.write_flush is not None
    ]
    certain = [least for least, _ in flushes]
    share = share_of(seen, "write_flush") - _encoding_share(seen)
    late = sum(flush for flush in certain if flush >= _LATE_FLUSH_NS)
    if not flushes or share < _SLOW_READER_SHARE or late < _MOST_OF_IT * sum(certain):
        return None
    sentence = (
        f"The client took its answers slowly: writing one took {_duration(median_of(flushes))} at the median, "
        f"{_duration(largest_of(flushes))} at worst."
    )
    return Reason("slow-reader", share, sentence)


def _encoding(seen: Seen) -> Reason | None:
    """Answers so large that making text of them is much of the call; the event loop does nothing else meanwhile."""
    known = [each.encode_ns for each in seen.requests if each.encode_ns is not None]
    if not known or max(known) < _LONG_ENCODING_NS:
        return None
    sentence = (
        f"Encoding an answer held the event loop for {duration(median(known) / MS)} at the median, "
        f"{duration(max(known) / MS)} at worst, before a byte of it was written."
    )
    return Reason("encoding", _encoding_share(seen), sentence)


def _encoding_share(seen: Seen) -> float:
    return of_time(seen, sum((each.encode_ns or 0) * each.weight for each in seen.requests))


def _less(ends: Ends, ns: int) -> Ends:
    """Both ends, without a part of it."""
    return max(0.0, ends[0] - ns), None if ends[1] is None else max(0.0, ends[1] - ns)


# --- nothing --------------------------------------------------------------------------------------


def _nothing_waited(seen: Seen) -> Reason:
    """What the requests did themselves, and how many at once."""
    if seen.most_in_flight < 3 and mean_total(seen) < _SHORT_NS:
        return _stages(seen)
    shares = {part: share_of(seen, part) for part in _OWN_PARTS}
    part = max(shares, key=lambda each: shares[each])
    most = seen.most_in_flight
    did = f"awaited {_awaited(seen)}" if part == "awaiting" else _OWN_PARTS[part]
    each = f"each {did}{_of_its_time(seen, part)}"
    together = f"up to {most} in flight at once" if most > 1 else "one at a time"
    if part == "busy" and shares[part] >= _MOST_OF_IT:
        sentence = f"{together[:1].upper()}{together[1:]}, {each}{_on_cpu(seen)}: nothing else could run meanwhile."
        return Reason("busy", shares[part], sentence)
    place = "" if _are_functions(seen) else " in the server"
    waited = f"Nothing{place} waited"
    possible = shares_of(seen, *_WAITS)
    if possible[1] is None or possible[1] >= WORTH_SAYING:
        waited = f"No wait{place} is certain ({_percent(possible)} of the time)"
    return Reason("nothing-waited", shares[part], f"{waited}: {together}, {each}.")


def _on_cpu(seen: Seen) -> str:
    """How much of the requests' slow steps was computing; empty if that was not measured."""
    known = [step for step in seen.steps if step.cpu_ns is not None]
    wall = sum(step.end_ns - step.start_ns for step in known)
    return f", {percent(min(1.0, sum(step.cpu_ns or 0 for step in known) / wall))} of it on the CPU" if wall else ""


def _stages(seen: Seen) -> Reason:
    """Short requests, one after another: where their little time went."""
    parts = (
        ("to be read and dispatched", ("queue_transport", "queue_dispatch")),
        ("on the event loop", ("busy", "gc")),
        ("on threads", ("executor_run",)),
        ("waiting for a turn", ("ready_wait", "executor_wait", "executor_return")),
        (f"awaiting {_awaited(seen)}", ("awaiting",)),
        ("to be written", ("write_wait", "write_flush")),
    )
    mean = mean_total(seen)
    figures = [(mean_of(seen, *names), words) for words, names in parts]
    fits = sum(least for (least, _), _ in figures) <= mean_totals(seen)[1]
    worth = [(ends, words) for ends, words in figures if (ends[1] or ends[0]) >= 0.05 * mean] if fits else []
    told = ", ".join(f"{_fine(ends)} {words}" for ends, words in worth)
    what = "a call took" if _are_functions(seen) else "a request took"
    place = "" if _are_functions(seen) else " in the server"
    return Reason("stages", 1.0, f"One at a time, {what} {_fine(mean_totals(seen))}{place}{told and ': '}{told}.")


_OUTSIDE = OUTSIDE | {"client"}


def _awaited(seen: Seen) -> str:
    """What most of the awaiting was for, if it was seen; "something outside" only of what is known to be outside."""
    waits: dict[tuple[str, str], float] = {}
    for request in seen.requests:
        for found in request.awaits or ():
            if found.stage == "awaiting":
                key = found.kind, found.object
                waits[key] = waits.get(key, 0.0) + found.ns * request.weight
    whole = sum((request.budget.awaiting or 0) * request.weight for request in seen.requests)
    (kind, name), most = max(waits.items(), key=lambda row: row[1], default=(("", ""), 0.0))
    if most >= _MOST_OF_IT * whole > 0:
        thing = name if name == kind else f"{kind} `{name}`"
        return f"{thing} in the server" if kind in INSIDE else thing
    outside = sum(ns for (kind, _), ns in waits.items() if kind in _OUTSIDE)
    return "something outside" if outside >= _MOST_OF_IT * whole > 0 else "something that was not seen"


def _of_its_time(seen: Seen, part: str) -> str:
    """How long ``part`` took of how long; empty if the two do not fit: they are not of the same requests."""
    (least, most), (shortest, longest) = mean_of(seen, part), mean_totals(seen)
    if least > longest:
        return ""
    ends = least, None if most is None else max(least, min(most, longest))
    return f" for {_duration(ends)} of its {_duration((shortest, longest))}"


def _are_functions(seen: Seen) -> bool:
    """Profiled calls made by the program itself: they came over no transport."""
    return all(each.kind == "function" for each in seen.requests)


def _percent(share: Ends) -> str:
    return ranged(*share, percent)


def _duration(ends: Ends) -> str:
    """Nanoseconds in words, both ends if they differ."""
    return ranged(*ends, lambda ns: duration(ns / MS))


def _fine(ends: Ends) -> str:
    """The same: below 10 ms with two decimals, below 0.1 ms in microseconds."""
    return ranged(*ends, _fine_words)


def _fine_words(ns: float) -> str:
    if ns < 0.1 * MS:
        return f"{ns / 1e3:.1f} µs"
    return f"{ns / MS:.2f} ms" if ns < 10 * MS else duration(ns / MS)


_LOOKS: tuple[Callable[[Seen], Reason | None], ...] = (
    thread_wait,
    transport_starved,
    threads_compute,
    _loop_held,
    _loop_queue,
    _pipe_wait,
    _writer_queue,
    _encoding,
    _slow_reader,
)
