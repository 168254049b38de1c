"""Calls that were sent at once: in how many waves they ended, and so how many are handled at once.

Pure functions of figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median

SHORT_MS = 10.0
"""A call shorter than this takes no time that waves could be told by."""

SLOWER = 1.4
"""Times a call's time: waves further apart than this are answers that were held back, and no calls handled at once."""

GAP = 0.4
"""Of one call's time: a pause between two ends from which on a new wave begins."""


@dataclass(frozen=True, slots=True)
class Waves:
    """``width``: calls handled at once as far as seen, ``None`` where they did not come in waves."""

    width: float | None
    sentence: str
    too_short: bool = False  # the calls: then nothing can be said


def waves_of(single_ms: float, ends_ms: Sequence[float]) -> Waves:
    """What the ends of calls sent at once say of how many are handled at once.

    ``single_ms`` is one call's time alone, ``ends_ms`` how long each of the burst took. Waves of k: the first k end
    after one call's time, the next k after two, …: ceil(N / k) in all, with a gap of about a call's time between them.
    """
    count, ends = len(ends_ms), sorted(ends_ms)
    if single_ms < SHORT_MS:
        short = f"A call takes {single_ms:.1f} ms: too short to tell calls side by side from calls one by one."
        return Waves(None, short, too_short=True)
    sizes = [1]
    for before, after in pairwise(ends):
        if after - before > GAP * single_ms:
            sizes.append(1)
        else:
            sizes[-1] += 1
    if len(sizes) == 1:
        shared = (ends[-1] - ends[0]) / max(count - 1, 1)
        more = f"; each added {shared:.2f} ms of work that they share" if ends[-1] > 1.3 * single_ms else ""
        return Waves(float(count), f"All {count} were handled at once{more}.")
    *full, _last = sizes
    width = round(median(full))
    uneven = max(sizes) > max(1.25 * width, width + 1) or min(full) < 0.75 * width or ceil(count / width) != len(sizes)
    if uneven or ends[-1] > SLOWER * len(sizes) * single_ms:
        return Waves(
            None,
            f"The last of {count} took {ends[-1] / single_ms:.1f} times as long as one alone, not in equal waves; "
            f"on average {count * single_ms / ends[-1]:.1f} were handled at once.",
        )
    if width == 1:
        return Waves(1.0, "They were handled one at a time: something in the server lets in only one.")
    return Waves(float(width), f"They came in {len(sizes)} waves of {width}: {width} are handled at once.")
