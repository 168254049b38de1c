"""Why requests took as long as they did, in one sentence, from the probe's readings alone.

The functions do not know who sent the requests. They work the same for a bundled workload, a user's server and
a recording.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from mcp_probe.aggregate.phrasing import duration, percent, place_of, plural, subject_of
from mcp_probe.aggregate.seen import LOOP_WAITS, MS, handling, mean_total, of_time, share_of, total_of
from mcp_probe.aggregate.seen import Reason as Reason
from mcp_probe.aggregate.seen import Seen as Seen
from mcp_probe.aggregate.thread_reasons import thread_wait, threads_compute, transport_starved
from mcp_probe.model import CROWDING_OPERATION

WORTH_SAYING = 0.10
"""A wait below this share of the requests' time explains nothing."""

_SHORT_NS = 5_000_000
_MOST_OF_IT = 0.5
_MOST_SAMPLED = 1.5  # times as long as the requests; longer samples include too much idle time around them
_LATE_FLUSH_NS = 20_000_000
_SLOW_READER_SHARE = 0.3
_OWN_PARTS = {
    "awaiting": "awaited something outside",
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


# --- the loop -------------------------------------------------------------------------------------


def _loop_held(seen: Seen) -> Reason | None:
    """Steps of other requests that the requests waited for while they could have run."""
    victims = {each.name or each.method for each in seen.requests}
    rows = [row for row in seen.summary.blocked_by if row.victim in victims]
    if not rows:
        return None
    blockers: dict[str, float] = {}
    for row in rows:
        blockers[row.blocker] = blockers.get(row.blocker, 0.0) + max(row.lo_ms, 0.0)
    blocker, lost_ms = max(blockers.items(), key=lambda item: item[1])
    share = min(of_time(seen, lost_ms * MS), share_of(seen, *LOOP_WAITS))
    if blocker == CROWDING_OPERATION:
        if seen.most_in_flight < 3:
            return None  # no crowd: waking up a sleeping loop takes some time
        return _starved_of_cpu(seen, share) or Reason("crowding", share, _crowding_sentence(seen, share))
    most = max((row.victims for row in rows if row.blocker == blocker), default=0)
    slow = max(
        (step for step in seen.summary.slow_steps if step.tool == blocker), key=lambda step: step.ms, default=None
    )
    waited = (
        f"{plural(most, 'request')} that could have run waited {duration(lost_ms / max(1, most))} for it on average."
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


def _starved_of_cpu(seen: Seen, share: float) -> Reason | None:
    """The loop's thread waited for a CPU longer than it ran, so the requests did not hold each other up.

    Both are sums over the same samples, so that an idle loop around a short burst does not matter.
    """
    queued_ms, ran_ms = seen.summary.signals.run_queue_ms, seen.summary.signals.loop_cpu_ms
    if queued_ms is None or ran_ms is None or queued_ms <= ran_ms:
        return None
    sentence = (
        f"The machine had no CPU for the event loop: its thread ran {duration(ran_ms)} and waited "
        f"{duration(queued_ms)} to run, so the requests waited {percent(share)} of their time for a turn."
    )
    return Reason("no-cpu", share, sentence)


def _utilization(seen: Seen) -> float | None:
    """Utilization of the loop during the requests; ``None`` if its half-second samples cover mostly other time."""
    utilization = seen.summary.loop.utilization
    if not utilization:
        return None
    sampled_ms = seen.summary.signals.busy_ms / utilization
    lasted_ms = (max(each.end_ns for each in seen.requests) - min(each.arrival_ns for each in seen.requests)) / MS
    return utilization if sampled_ms <= _MOST_SAMPLED * lasted_ms else None


def _crowding_sentence(seen: Seen, share: float) -> str:
    utilization = _utilization(seen)
    busy = "" if utilization is None else f", which was busy {percent(utilization)} of the time"
    return (
        f"{plural(seen.most_in_flight, 'request')} in flight shared one event loop{busy}: {percent(share)} of their "
        "time they waited behind many short steps of each other."
    )


def _loop_queue(seen: Seen) -> Reason | None:
    """The same waits where no single step can be named."""
    if seen.most_in_flight < 3:
        return None  # a request alone waits for its own transport's steps: _stages says how long
    share = share_of(seen, *LOOP_WAITS)
    held = _loop_held(seen)
    if held is not None and held.share >= _MOST_OF_IT * share:
        return None
    if (starved := _starved_of_cpu(seen, share)) is not None:
        return starved
    per_request = share * mean_total(seen)
    utilization = _utilization(seen)
    busy = "" if utilization is None else f" (busy {percent(utilization)} of the time)"
    sentence = (
        f"With {plural(seen.most_in_flight, 'request')} in flight each waited {duration(per_request / MS)} for its "
        f"turn on the event loop{busy}, {percent(share)} of its time."
    )
    return Reason("loop-queue", share, sentence)


# --- the way in -----------------------------------------------------------------------------------


def _pipe_wait(seen: Seen) -> Reason | None:
    """Requests that were sent and not yet read; known if the client says when it sent them."""
    waits = sorted(each.arrival_ns - each.sent_ns for each in seen.requests if each.sent_ns is not None)
    if not waits:
        return None
    lost = sum(max(0, wait) for wait in waits)
    whole = sum(map(total_of, seen.requests)) + lost
    sentence = (
        f"Requests lay unread in the pipe for {duration(max(0, median(waits)) / MS)} at the median, "
        f"{duration(waits[-1] / MS)} at worst, before the server took them; no queue of its own counts that."
    )
    return Reason("pipe-wait", lost / whole if whole else 0.0, sentence)


# --- the way out ----------------------------------------------------------------------------------


def _writer_queue(seen: Seen) -> Reason | None:
    """Finished answers that waited for the one writer."""
    waits = [each.budget.write_wait for each in seen.requests if each.budget.write_wait is not None]
    if not waits:
        return None
    where = "one stdout writer" if seen.summary.server.transport == "stdio" else "connection's writer"
    sentence = (
        f"Finished responses queued {duration(median(waits) / MS)} at the {where} at the median, "
        f"{duration(max(waits) / MS)} at worst, with up to {plural(seen.most_in_flight, 'request')} read and not "
        f"yet answered; a handler took {duration(median(map(handling, seen.requests)) / MS)}."
    )
    return Reason("writer-queue", share_of(seen, "write_wait"), sentence)


def _slow_reader(seen: Seen) -> Reason | None:
    """Answers that the client took late; the machine may delay a few."""
    flushes = [each.budget.write_flush for each in seen.requests if each.budget.write_flush is not None]
    share, late = share_of(seen, "write_flush"), sum(flush for flush in flushes if flush >= _LATE_FLUSH_NS)
    if not flushes or share < _SLOW_READER_SHARE or late < _MOST_OF_IT * sum(flushes):
        return None
    sentence = (
        f"The client took its answers slowly: writing one took {duration(median(flushes) / MS)} at the median, "
        f"{duration(max(flushes) / MS)} at worst."
    )
    return Reason("slow-reader", share, sentence)


# --- nothing --------------------------------------------------------------------------------------


def _nothing_waited(seen: Seen) -> Reason:
    """What the requests did themselves, and how many at once."""
    if seen.most_in_flight < 3 and mean_total(seen) < _SHORT_NS:
        return _stages(seen)
    shares = {part: share_of(seen, part) for part in _OWN_PARTS}
    part = max(shares, key=lambda each: shares[each])
    most, mean = seen.most_in_flight, mean_total(seen)
    each = f"each {_OWN_PARTS[part]} for {duration(shares[part] * mean / MS)} of its {duration(mean / MS)}"
    together = f"up to {most} in flight at once" if most > 1 else "one at a time"
    if part == "busy" and shares[part] >= _MOST_OF_IT:
        sentence = f"{together[:1].upper()}{together[1:]}, {each}{_on_cpu(seen)}: nothing else could run meanwhile."
        return Reason("busy", shares[part], sentence)
    place = "" if _are_functions(seen) else " in the server"
    return Reason("nothing-waited", shares[part], f"Nothing{place} waited: {together}, {each}.")


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
        ("awaiting something outside", ("awaiting",)),
        ("to be written", ("write_wait", "write_flush")),
    )
    mean = mean_total(seen)
    figures = [(share_of(seen, *names) * mean, words) for words, names in parts]
    told = ", ".join(f"{_fine(ns)} {words}" for ns, words in figures if ns >= 0.05 * mean)
    what = "a call took" if _are_functions(seen) else "a request took"
    place = "" if _are_functions(seen) else " in the server"
    return Reason("stages", 1.0, f"One at a time, {what} {_fine(mean)}{place}: {told}.")


def _are_functions(seen: Seen) -> bool:
    """Profiled calls made by the program itself: they came over no transport."""
    return all(each.kind == "function" for each in seen.requests)


def _fine(ns: float) -> str:
    """A duration: below 10 ms with two decimals, below 0.1 ms in microseconds."""
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
    _slow_reader,
)
