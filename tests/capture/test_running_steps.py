"""A step that is read while it runs may end meanwhile: the next one's request must not get its time."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.capture.drain import Drain
from mcp_probe.capture.in_flight import _Moment, step_of

MS = 1_000_000
RESIZE = SimpleNamespace(id=1, operation="resize", parent=None)
LOOKUP = SimpleNamespace(id=2, operation="lookup", parent=None)


class Monitor:
    """A loop whose step ends, and whose next one begins, once its thread is asked about."""

    ordinal = 0
    thread_id = 0
    slow_step_ns = 10 * MS

    def __init__(self) -> None:
        self.since, self.owner = 1 * MS, RESIZE
        self.watch = None

    def go_on(self) -> None:
        self.since, self.owner = 801 * MS, LOOKUP


def drained(monitor: Monitor, running: Any) -> list[Any]:
    hub = SimpleNamespace(
        slow=deque(),
        recent=None,
        slow_step_ns=10 * MS,
        watchdog=SimpleNamespace(watches=lambda: [(monitor, SimpleNamespace(running=running))]),
    )
    drain = Drain.__new__(Drain)
    drain._hub = hub  # type: ignore[assignment]
    drain.take_polls = lambda: None  # type: ignore[method-assign]
    return list(drain.steps())


@pytest.mark.parametrize("ends", [False, True])
def test_a_running_step_is_its_owners_or_not_told(ends: bool) -> None:
    monitor = Monitor()

    def running(limit_ns: int) -> tuple[int, int, None, None, None]:
        if ends:
            monitor.go_on()
        return 1 * MS, 800 * MS, None, None, None

    steps = drained(monitor, running)
    assert [(step.request, step.start_ns) for step in steps] == ([] if ends else [(1, 1 * MS)])


def test_a_step_that_is_over_belongs_to_nobody_now() -> None:
    moment = _Moment.__new__(_Moment)
    monitor: Any = Monitor()
    moment._monitors = {0: monitor}
    moment._steps = {0: SimpleNamespace(request=1, for_ms=800.0)}  # type: ignore[dict-item]
    assert moment._step_of(RESIZE) is moment._steps[0]  # type: ignore[arg-type]
    monitor.go_on()
    assert moment._step_of(LOOKUP) is None  # type: ignore[arg-type]
    assert moment._step_of(RESIZE) is None  # type: ignore[arg-type]


def test_a_step_that_ends_while_it_is_read_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor: Any = Monitor()
    monitor.since = 2**62  # a short one: nobody looks at its stack
    told = step_of(None, None, monitor)  # type: ignore[arg-type]
    assert told is not None and told.request == 1

    def now() -> int:
        monitor.go_on()
        return 2**62

    monkeypatch.setattr("mcp_probe.capture.in_flight.now_ns", now)
    assert step_of(None, None, monitor) is None  # type: ignore[arg-type]
