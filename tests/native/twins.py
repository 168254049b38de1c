"""Both twins of each accelerated class, whichever of them the package itself uses here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.loop_steps import PythonSteps
from mcp_probe.record.raw import PythonRequest

needs_the_accelerator = pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")

needs_the_memory_hooks = pytest.mark.skipif(native.memory is None, reason=f"no memory hooks: {native.memory_absence}")

REQUEST_FIELDS: tuple[str, ...] = tuple(
    """
    id kind method name transport request_id protocol_version session channel parent loop arrival_ns
    arrival_earliest_ns taken_ns first_step_ns result_ns write_taken_ns flushed_ns end_ns outcome error jobs pauses
    client_waits starved write_waits spilled decode_ns encode_ns request_bytes response_bytes handler detached_ns
    settles ended transport_seen write_seen partial seen_open seen mark_count operation trace_id span_id
    parent_span_id trace_flags trace_state server_span resource_uri session_id error_code sent_ns sized measured
    metered ambient lend_span blocked_others_ns gone_ns
    """.split()  # noqa: SIM905 - a word a field
)
STEP_FIELDS: tuple[str, ...] = tuple(
    """
    unit since suspended earliest ready now poll_end looked event_earliest event_ready steps ordinal wake inherit alive
    stretches thread_id loop_id shows may_wait
    """.split()  # noqa: SIM905
)


PythonRaw = PythonRequest
NativeRaw: Any = None
if native.core is not None:
    NativeRaw = native.core.Request


class Told:
    """What the hot path calls back, written down; the parts of ``LoopMonitor`` that both twins rely on."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.detached: dict[str, int] = {}
        self._sink = SimpleNamespace(kept_marks=0)

    def _keep(self, owner: Any, since: int, now: int) -> None:
        self.told.append(("keep", number_of(owner), since, now))

    def settle(self, owner: Any, now: int) -> None:
        self.told.append(("settle", number_of(owner), now))
        owner.ended = True

    def broken(self, exc: Exception) -> None:
        self.told.append(("broken", repr(exc)))

    _charge = LoopMonitor._charge


class PythonMonitor(Told, PythonSteps):
    """A monitor on the Python twin."""


NativeMonitor: Any = None
if native.core is not None:
    NativeMonitor = type("NativeMonitor", (Told, native.core.Steps), {})


def number_of(owner: Any) -> int | None:
    return None if owner is None else int(owner.id)


def shown(raw: Any) -> dict[str, Any]:
    """All that can be seen of a request; other requests by their number."""
    fields = {name: getattr(raw, name) for name in REQUEST_FIELDS}
    fields["parent"] = number_of(fields["parent"])
    fields["marks"] = [tuple(mark) for mark in raw.marks]
    fields["units"] = dict(raw.units)
    fields["small_steps"] = raw.small_steps()
    spilled = fields["spilled"]
    if spilled is not None:
        fields["spilled"] = {name: getattr(spilled, name) for name in type(spilled).__slots__}
    return fields


def shown_steps(steps: Any) -> dict[str, Any]:
    """All that can be seen of a loop's state, the polls apart: the twins count them at different times."""
    return {**{name: getattr(steps, name) for name in STEP_FIELDS}, "owner": number_of(steps.owner), "told": steps.told}
