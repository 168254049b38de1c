"""Snapshots made by hand."""

from __future__ import annotations

from typing import Any

from mcp_probe.now import Holder, LoopNow, OperationNow, PoolNow, RequestNow, ServerNow, Snapshot, StepNow, WaitNow

SERVER = ServerNow(
    pid=4711,
    name="notes",
    sdk="mcp 2.3.0",
    python="3.13.1",
    probe="0.1.0",
    transport="stdio",
    loop="asyncio",
    command="notes.py",
)


def make_request(id: int = 3, operation: str = "search", state: str = "awaiting", **given: Any) -> RequestNow:
    values = {
        "id": id,
        "operation": operation,
        "method": "tools/call",
        "kind": "request",
        "transport": "stdio",
        "state": state,
        "age_ms": 1_000.0 * id,
        "state_ms": 900.0 * id,
        **given,
    }
    return RequestNow(**values)


def make_loop(**given: Any) -> LoopNow:
    values = {
        "loop": 1,
        "name": "asyncio",
        "state": "idle",
        "step": None,
        "utilization": 0.25,
        "arrival_delay_ms": 1.5,
        "longest_ms": 40.0,
        "quality": "exact",
        **given,
    }
    return LoopNow(**values)


def make_snapshot(*requests: RequestNow, **given: Any) -> Snapshot:
    values: dict[str, Any] = {
        "server": SERVER,
        "at_unix": 1_700_000_000.0,
        "every_s": 1.0,
        "slow_step_ms": 10.0,
        "in_flight": len(requests),
        "unread": None,
        "requests": requests,
        "loops": (make_loop(),),
        "pools": (),
        "operations": (),
        "window_s": 10.0,
        "rss_bytes": 84_100_000,
        "memory_limit_bytes": None,
        **given,
    }
    return Snapshot(**values)


HELD = WaitNow(
    kind="lock",
    object="asyncio.Lock made at notes.py:5",
    where="/srv/app/notes.py:8",
    for_ms=4_400.0,
    holders=(Holder(3, "append_note", "/srv/app/notes.py:8", 4_500.0),),
)

DEADLOCK = make_snapshot(
    make_request(3, "append_note", waits=(WaitNow("sleep", "sleep", "/srv/app/notes.py:9", 4_500.0),)),
    make_request(4, "append_note", waits=(HELD,)),
    make_request(5, "append_note", waits=(HELD,)),
    operations=(OperationNow("search", 120, 2, 12.0, 14.0, 166.0, 200.0),),
)

BLOCKED = make_snapshot(
    make_request(5, "resize", "busy", where="/srv/app/thumbs.py:31"),
    make_request(
        6,
        "search",
        "queue",
        waits=(WaitNow("loop", "event loop", holders=(Holder(5, "resize", "/srv/app/thumbs.py:31", 3_200.0),)),),
    ),
    unread=3,
    loops=(
        make_loop(
            state="blocked",
            step=StepNow(5, "resize", 3_200.0, "/srv/app/thumbs.py:31", "resize", "time.sleep", 10.0),
            utilization=1.0,
        ),
    ),
    pools=(PoolNow("anyio default limiter", None, 40, 40, 40, 10, 812.0, (Holder(None, "resize", None, 900.0, 40),)),),
)
