"""What is known of a plain request while it still runs, for less than a whole record costs; pure.

Plain: one unit, no threads, no collector pause, no wait long enough to ask who caused it. Everything else is
:func:`mcp_probe.record.assemble.assemble`'s, which says the same of a plain one (tests hold the two together).
"""

from __future__ import annotations

from typing import NamedTuple

from mcp_probe.record.assemble import LATE_NS
from mcp_probe.record.raw import WAKE_SPLIT, WAKE_THREAD, WAKE_UNKNOWN, RawRequest, StepMark


class SoFar(NamedTuple):
    """Nanoseconds up to now; ``None`` = could not be seen."""

    busy: int
    ready_wait: int
    executor_return: int
    awaiting: int
    unaccounted: int
    queue_transport: int | None
    queue_dispatch: int | None
    steps: int
    step_max: int
    vague: int  # what ready_wait may be longer, and awaiting shorter


def so_far(raw: RawRequest, running: StepMark) -> SoFar | None:
    """``raw`` at the end of ``running``, the step it is on right now; ``None`` where it is not plain."""
    first = raw.first_step_ns
    if first is None or raw.spilled is not None or raw.jobs or raw.pauses or raw.partial:
        return None
    arrival = raw.arrival_ns
    if arrival is not None:
        earliest = raw.arrival_earliest_ns
        if first - (arrival if earliest is None or earliest > arrival else earliest) > LATE_NS:
            return None
    unit, suspended, possible, ready, since, now, wake = running
    fresh = raw.mark_count == 0
    if not fresh and (wake in (WAKE_SPLIT, WAKE_UNKNOWN) or since - max(possible, suspended) > LATE_NS):
        return None
    found = raw.fold_single(first, since)
    if found is None or (unit not in raw.units and not fresh):
        return None
    busy, ready_wait, returning, awaiting, _, steps, longest, _, vague = found
    if not fresh:
        waited = since - min(max(ready, suspended), since)
        awaiting -= waited
        if wake == WAKE_THREAD:
            returning += waited
        else:
            ready_wait += waited
        vague += max(0, ready - max(possible, suspended))
    busy += now - since
    taken = raw.taken_ns
    return SoFar(
        busy,
        ready_wait,
        returning,
        awaiting,
        max(0, now - first - busy - ready_wait - returning - awaiting),
        None if arrival is None or not raw.transport_seen else max(0, (first if taken is None else taken) - arrival),
        None if taken is None else max(0, first - taken),
        steps + 1,
        max(longest, now - since),
        vague,
    )
