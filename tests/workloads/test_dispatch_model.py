"""Messages one by one and in tasks: every form handles each message once, and needs the memory that is its point."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from mcp_probe.model import RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.models.dispatch import (
    LIMIT,
    Form,
    Order,
    answer,
    computing_handler,
    handler_of,
    run_form,
    source,
    unavailable,
)
from mcp_probe.workloads.servers.arithmetic import computed

FORMS = [form for form in get_args(Form) if unavailable(form) is None]


def test_the_handler_computes_what_the_document_says() -> None:
    assert [computed(item) for item in (0, 1, 2, 99, 100)] == [0, 2, 7, 99 + sum(k * k for k in range(100)), 100]
    assert anyio.run(computing_handler, 3) == 3 + 0 + 1 + 4 + 9


@pytest.mark.parametrize("form", FORMS)
def test_every_form_handles_each_message_once(form: Form) -> None:
    handled: list[int] = []
    order = Order(form, "work", 100)

    async def noting(item: int) -> int:
        handled.append(item)
        return await handler_of(order)(item)

    anyio.run(run_form, order, noting)
    assert handled == list(range(100))


@pytest.mark.parametrize(
    ("form", "together"), [("one by one", 1), ("anyio tasks", 100), ("limit", LIMIT), ("yielding", 100)]
)
def test_waiting_handlers_overlap_as_the_form_allows(form: Form, together: int) -> None:
    inside = most = 0
    pause_s = 0.001 if together == 1 else 0.3  # long enough for all to have come, however busy the machine

    async def waiting(item: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.sleep(pause_s)
        inside -= 1
        return item

    anyio.run(run_form, Order(form, "work", 100), waiting)
    assert most == together


def test_the_source_never_lets_others_run() -> None:
    async def others_ran() -> bool:
        ran: list[str] = []

        async def other() -> None:
            ran.append("other")

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            async for _ in source(50):
                pass
            before_waiting = bool(ran)
        assert ran == ["other"]
        return before_waiting

    assert anyio.run(others_ran) is False


@pytest.mark.workloads
def test_memory_grows_with_the_messages_only_where_nothing_holds_them_back() -> None:
    def peak(form: Form, messages: int) -> int:
        found = answer(Order(form, "document", messages)).peak_bytes
        assert found is not None
        return found

    peak("anyio tasks", 10)  # the loop's first use imports it
    tasks = peak("anyio tasks", 800)
    assert 3.2 < tasks / peak("anyio tasks", 200) < 4.4
    forms: tuple[Form, ...] = ("one by one", "suspending source", "limit", "eager tasks")
    for form in forms:
        if unavailable(form) is None:
            peak(form, 800)  # what is used for the first time is imported, and counts
            assert peak(form, 800) < tasks / 20, form


def test_the_work_is_timed_untraced_and_the_document_s_timer_is_not() -> None:
    assert answer(Order("one by one", "work", 20)).peak_bytes is None
    assert answer(Order("one by one", "work", 0)).peak_bytes is None
    assert (answer(Order("one by one", "document", 0)).peak_bytes or 0) > 0


def test_a_process_answers_order_after_order_and_records_when_asked(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    orders: list[dict[str, Any]] = [
        {"form": "anyio tasks", "timer": "work", "messages": 30},
        {"form": "anyio tasks", "timer": "work", "messages": 30, "wait_ms": 1.0, "record": str(recording)},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mcp_probe.workloads.models.dispatch"],
        input="".join(json.dumps(order) + "\n" for order in orders),
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["wall_ns"] > 0 and first["cpu_ns"] > 0
    assert second == {}
    seen = [frame for frame in read_recording(recording) if isinstance(frame, RequestRecord)]
    assert len(seen) == 30
    assert {record.method for record in seen} == {"waiting_handler"}
