"""Requests that never happened, with times that a test chooses: for tests of what reads summaries and recordings."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import OptionError
from mcp_probe.model import BUDGET_PARTS, Budget, End, Frame, Header, RequestRecord, Summary
from mcp_probe.record.file import encode, preamble
from mcp_probe.record.private_file import opened
from mcp_probe.testing.manual_clock import ManualClock

_PARTS_MS = {f"{part}_ms": part for part in BUDGET_PARTS}
_FIELDS = tuple(field.name for field in fields(RequestRecord))
_ids = itertools.count(1)


def make_record(name: str | None = "tool", *, clock: ManualClock | None = None, **given: Any) -> RequestRecord:
    """One answered call of the tool ``name``, as a probe would record it.

    Args:
        clock: the call arrives when it says, and it says the call's end afterwards. Without it the call arrives at 0;
            for calls that overlap give ``arrival_ns=clock()`` instead of the clock.
        given: the parts of its budget in milliseconds, such as ``busy_ms=3, awaiting_ms=7``: this call ends 10 ms after
            its arrival. A part that is not given is 0, and ``None`` could not be seen. Everything else is a field of
            :class:`mcp_probe.model.RequestRecord` by its name: ``outcome="error"``, ``method="prompts/get"``.

    Raises: OptionError for a name that is no part and no field, and for a part that is negative.
    """
    _check_names(given)
    budget = given.pop("budget", None) or _budget(given)
    arrival_ns = given.pop("arrival_ns", 0 if clock is None else clock())
    end_ns = given.pop("end_ns", arrival_ns + sum(getattr(budget, part) or 0 for part in BUDGET_PARTS))
    if clock is not None:
        clock.advance(ns=end_ns - clock())
    record = RequestRecord(
        id=given.pop("id", None) or next(_ids),
        kind="request",
        method="tools/call",
        name=name,
        transport="stdio",
        outcome="ok",
        error=None,
        arrival_ns=arrival_ns,
        first_step_ns=arrival_ns + (budget.queue_transport or 0) + (budget.queue_dispatch or 0),
        result_ns=end_ns - (budget.write_wait or 0) - (budget.write_flush or 0),
        end_ns=end_ns,
        budget=budget,
        steps=1,
        step_max_ns=budget.busy or 0,
        immediate_resumes=0,
        sequential_awaits=0,
        executor_run_sum_ns=budget.executor_run or 0,
        detached_ns=0,
        decode_ns=None,
        encode_ns=None,
        client_wait_ns=None,
        request_bytes=None,
        response_bytes=None,
        waits=(),
        quality=(),
        partial=False,
    )
    return replace(record, **given)


def summary_of(records: Iterable[RequestRecord]) -> Summary:
    """What a report of ``records`` says. Its window ends with the last of them.

    Steps on the loop, thread pools and the process are not in records, so findings that rest on these are not raised.
    """
    fold = Fold()
    for frame in _frames(records):
        fold.add(frame)
    return fold.summary()


def write_recording(path: str | os.PathLike[str], records: Iterable[RequestRecord]) -> None:
    """A recording of ``records``, which every command reads that takes one. A file at ``path`` is replaced.

    Raises: OptionError if it cannot be written.
    """
    with opened(Path(path)) as stream:
        for line in (preamble(), *map(encode, _frames(records))):
            stream.write(line.decode())


def _check_names(given: dict[str, Any]) -> None:
    for name in given:
        if name not in _PARTS_MS and name not in _FIELDS:
            like = get_close_matches(name, [*_PARTS_MS, *_FIELDS], 1)
            hint = f" Did you mean {like[0]}?" if like else f" Expected a part of the budget ({', '.join(_PARTS_MS)})."
            raise OptionError(f"A record has nothing called {name!r}.{hint}")


def _budget(given: dict[str, Any]) -> Budget:
    """Takes its parts out of ``given``."""
    parts: dict[str, int | None] = dict.fromkeys(BUDGET_PARTS, 0)
    for name, part in _PARTS_MS.items():
        length_ms = given.pop(name, 0)
        if length_ms is not None and length_ms < 0:
            raise OptionError(f"{name} is {length_ms}; expected a length of 0 or more, or None if it was not seen.")
        parts[part] = None if length_ms is None else round(length_ms * 1e6)
    return Budget(**parts)


def _frames(records: Iterable[RequestRecord]) -> list[Frame]:
    """``records`` as a stream: in the order of their ends, as a probe hands them on."""
    ordered = sorted(records, key=lambda record: record.end_ns)
    first_ns = min((record.arrival_ns for record in ordered), default=0)
    last_ns = ordered[-1].end_ns if ordered else first_ns
    header = Header(
        probe_version="made by a test",
        server="made by a test",
        sdk="none",
        sdk_version="",
        transport=ordered[0].transport if ordered else "unknown",
        loop="none",
        python=".".join(map(str, sys.version_info[:3])),
        pid=os.getpid(),
        start_unix=0.0,
        start_ns=first_ns,
        timer_resolution_ns=1,
        hooks=(),
    )
    return [header, *ordered, End(last_ns, "exit", len(ordered))]
