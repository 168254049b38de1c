"""What is known of a plain request while it still runs, for less than a whole record costs; pure.

Plain: one unit, no threads, no collector pause, no wait long enough to ask who caused it. Everything else is
:func:`mcp_probe.record.assemble.assemble`'s, which says the same of a plain one (tests hold the two together).
"""

from __future__ import annotations

from typing import NamedTuple

from mcp_probe.record.raw import RawRequest, StepMark


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
    """``raw`` at the end of ``running``, the step it is on right now; ``None`` where it is not plain.

    Only the accelerator has this short cut.
    """
    found = raw.so_far(running)
    return None if found is None else SoFar(*found)
