"""How sentences of findings write numbers, names and places."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

from mcp_probe.aggregate.quality import total_quality
from mcp_probe.model import LOOP_OPERATION, GuiltyPlace, OperationSummary, RequestCounts, Tag

_LIBRARY = re.compile(r"(?<![^/])(?:site-packages|dist-packages|lib/python3(?:\.\d+)?t?)/")


_NO_NAMES = {"(no request)": "background jobs of no request", "(loop)": "background work"}
"""What a name in brackets says of work, in a sentence."""

_BACKGROUND = "background work (start-up, a task of the server's own, the transport)"


CAME_LATER = (
    "Requests that were in the server before the probe came are not in this report; the look shows their tasks."
)
"""A note of what a probe found that was brought into a running process."""

MORE_CPU = "First give the server more CPU and run it again: where it has none, everything waits. "
"""What comes before other advice on a machine that was short of it."""


_UNITS = ((1.0, "ms", 999.5), (1e3, "s", 599.5e3), (60e3, "min", 119.5 * 60e3), (3.6e6, "h", math.inf))


def duration(ms: float) -> str:
    """``4.2 ms``, ``412 ms``, ``3.1 s``, ``12 s``, ``11 min``: two or three digits."""
    number, unit = _scaled(ms)
    return f"{_digits(number)} {unit}"


def at_least(ms: float) -> str:
    """``at least 4.7 s`` of 4.76 s: as :func:`duration`, never more than it is."""
    number, unit = _scaled(ms)
    step = 0.1 if number < 9.95 else 1.0
    return f"at least {_digits(math.floor(number / step + 1e-9) * step)} {unit}"


def _scaled(ms: float) -> tuple[float, str]:
    return next((ms / scale, unit) for scale, unit, below in _UNITS if ms < below)


def percentile(operation: OperationSummary, name: Literal["p50", "p95", "p99", "max"]) -> str:
    """A percentile of an operation's time as it is known: ``427 ms``, ``at least 427 ms``, ``406-443 ms``."""
    value: float | None = getattr(operation.total_ms, name)
    if value is None:
        return "unknown length"
    quality = total_quality(operation, name)
    if quality.tag == "bounded" and quality.lo is not None and quality.hi is not None:
        return ranged(quality.lo, quality.hi, duration)
    return known(value, quality.tag)


def ranged(least: float, most: float | None, told: Callable[[float], str]) -> str:
    """A number by both ends, as ``told`` words one: ``427 ms``, ``406-443 ms``, ``at least 427 ms``, ``at most 1%``."""
    lo = told(least)
    if most is None:
        return f"at least {lo}"
    hi = told(most)
    if lo == hi:
        return lo
    if least <= 0.01 * most:
        return f"at most {hi}"
    if lo.endswith("%"):
        return f"{lo[:-1]}-{hi}" if lo[0].isdigit() else f"at most {hi}"
    return f"{lo.rpartition(' ')[0]}-{hi}" if lo.split(" ")[-1] == hi.split(" ")[-1] else f"{lo} to {hi}"


def calls_of(name: str, own: bool) -> str:
    """Whom somebody waited for: a tool, or other calls of its ``own``."""
    return f"other calls of `{name}`" if own else f"`{name}`"


def known(least_ms: float, tag: Tag) -> str:
    """The lower end of a time: ``427 ms`` if it is exact, else ``at least 427 ms``."""
    return duration(least_ms) if tag == "exact" else at_least(least_ms)


def _digits(number: float) -> str:
    if number < 0.095:
        return "less than 0.1" if number > 0 else "0"
    return f"{number:.1f}" if number < 9.95 else f"{number:,.0f}"


def percent(ratio: float) -> str:
    """A share that is worth a finding, without decimals."""
    return f"{100 * ratio:.0f}%" if ratio == 0 or ratio >= 0.005 else "less than 1%"


def size(count: float) -> str:
    """Bytes, in powers of 1000."""
    for scale, unit in ((1.0, "B"), (1e3, "kB"), (1e6, "MB")):
        if count < 999.5 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e9:,.3g} GB"


def looked_at(requests: RequestCounts) -> str:
    """A sentence on how many requests the figures rest on, if not every request has a record; else empty."""
    if requests.recorded is None or requests.recorded >= requests.count:
        return ""
    one_in = round(requests.count / requests.recorded) if requests.recorded else 0
    part = f"1 of {one_in:,}" if one_in > 1 else f"{requests.recorded:,} of {requests.count:,}"
    return f"{part if one_in else 'None of the'} requests looked at in full; counts and durations are of all."


def times(count: int) -> str:
    """``once``, ``12 times``."""
    return "once" if count == 1 else f"{count:,} times"


def plural(count: int, noun: str) -> str:
    """``1 request``, ``57 requests``."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def subject_of(operation: str) -> str:
    """An operation at the start of a sentence."""
    return _BACKGROUND[0].upper() + _BACKGROUND[1:] if operation == LOOP_OPERATION else f"`{operation}`"


def object_of(operation: str) -> str:
    """An operation inside a sentence."""
    return _BACKGROUND if operation == LOOP_OPERATION else f"`{operation}`"


def listed(names: Sequence[str], most: int = 3) -> str:
    """```a`, `b` and 2 more``; empty for no names."""
    shown = [_NO_NAMES.get(name, name) if name.startswith("(") else f"`{name}`" for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return joined(shown)


def holder_name(name: str) -> str:
    """Who held something, where no sentence is around it."""
    return _NO_NAMES.get(name, name)


def joined(parts: Sequence[str]) -> str:
    """``one, two and three``; empty for none."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def so_did(names: Sequence[str]) -> str:
    """``; so did `b` and `c` `` of operations whose first the sentence is about; empty where there is no other."""
    others = _others(names)
    return f"; so did {listed(others)}" if others else ""


def waited_too(names: Sequence[str]) -> str:
    """``; `b` and `c` waited for it, too``, each as long as it did; empty where there is no other."""
    others = _others(names)
    return f"; {listed(others)} waited for it, too" if others else ""


def _others(names: Sequence[str]) -> list[str]:
    return sorted(set(names[1:]) - {names[0]})


def place_rows(places: Sequence[GuiltyPlace], told: Callable[[str, Tag], str]) -> list[tuple[str, str]]:
    """For each its share of their time, with how long and how often, in columns; and where it was, in words.

    ``told`` words a ``file:line`` and how exact it is.
    """
    whole = sum(one.ms for one in places)
    columns = [(_brief_share(one.ms, whole), duration(one.ms), times(one.count)) for one in places]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    figures = ["  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in columns]
    at = ["line not seen" if one.where is None else told(one.where, one.quality) for one in places]
    return [
        (row, " ".join(filter(None, (where, one.what)))) for row, where, one in zip(figures, at, places, strict=True)
    ]


def _brief_share(part: float, whole: float) -> str:
    if whole <= 0:
        return ""
    return "<1%" if 0 < part < 0.005 * whole else percent(part / whole)


def probably_at(where: str, quality: Tag) -> str:
    """``at server.py:41``, or ``probably at`` it."""
    return f"{'at' if quality == 'exact' else 'probably at'} {place_at(where) or where}"


def file_and_line(where: str | None) -> tuple[str, int] | None:
    """The two of ``file:line``; ``None`` where it is not known."""
    file, _, line = (where or "").rpartition(":")
    return (file, int(line)) if file and line.isdecimal() else None


def place_at(where: str | None) -> str | None:
    """As :func:`place_of`, of ``file:line``."""
    found = file_and_line(where)
    return None if found is None else place_of(*found)


def place_of(file: str | None, line: int | None) -> str | None:
    """``server.py:41``; for a library, the path inside it. ``None`` if the file is not known."""
    if not file:
        return None
    path = file.replace("\\", "/")
    libraries = list(_LIBRARY.finditer(path))
    short = path[libraries[-1].end() :] if libraries else path.rsplit("/", 1)[-1]
    return short if line is None else f"{short}:{line}"
