"""The one seam of mcp 1.x, driven by hand: what passes it is untouched, whatever fails in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import mcp_probe
from tests.kept import Log, keep
from tests.safety.test_faults import Breaker


class OldServer:
    """Shaped like mcp 1.x's low-level server: ``_handle_request`` answers through the message."""

    name = "old"

    def __init__(self) -> None:
        self.request_handlers: dict[Any, Any] = {}
        self.fault: BaseException | None = None

    async def _handle_request(self, message: Any, req: Any, *others: Any) -> Any:
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        await message.respond(SimpleNamespace(root=SimpleNamespace(isError=req.params.name == "sorry")))
        return others

    async def run(self, *streams: Any) -> Any:
        return tuple(stream() if callable(stream) else stream for stream in streams)


class Message:
    def __init__(self) -> None:
        self.request_id = 1
        self.answers: list[Any] = []

    async def respond(self, response: Any) -> None:
        self.answers.append(response)


def request(tool: str) -> Any:
    return SimpleNamespace(method="tools/call", params=SimpleNamespace(name=tool))


async def handle(server: OldServer, tool: str) -> tuple[Any, list[Any]]:
    message = Message()
    others = (object(), object())
    returned = await server._handle_request(message, request(tool), *others)
    assert returned == others and all(mine is theirs for mine, theirs in zip(returned, others, strict=True))
    return returned, message.answers


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logging.getLogger("mcp_probe").addHandler(handler)
    yield handler
    logging.getLogger("mcp_probe").removeHandler(handler)


async def test_answers_pass_once_and_are_recorded() -> None:
    server = OldServer()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    for tool in ("add", "sorry"):
        _, answers = await handle(server, tool)
        assert len(answers) == 1
    probe.detach()
    assert vars(server).keys() == {"request_handlers", "fault"}
    assert [(record.name, record.outcome) for record in kept.requests()] == [("add", "ok"), ("sorry", "tool_error")]


async def test_what_traces_begins_as_the_server_is_run_before_its_transport_takes_a_step() -> None:
    server = OldServer()
    probe = mcp_probe.attach(server)
    memory = probe._hub.memory
    assert not memory.looping
    assert asyncio.iscoroutinefunction(server.run)
    assert await server.run(lambda: memory.looping) == (True,)
    probe.detach()
    assert "run" not in vars(server)


async def test_a_server_runs_whatever_fails_as_its_loop_begins(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    breaker = Breaker(monkeypatch, "mcp_probe.capture.memory_tier:Memory.loop_begins", 0)
    server = OldServer()
    probe = mcp_probe.attach(server)
    assert await server.run(1) == (1,)
    probe.detach()
    assert breaker.hits == 1
    assert log.messages == ["mcp_probe: hook memory is disabled"]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(ValueError("x"), "error"), (asyncio.CancelledError("y"), "cancelled"), (KeyboardInterrupt(), "cancelled")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_exception_passes_as_the_same_object(fault: BaseException, outcome: str) -> None:
    server = OldServer()
    server.fault = fault
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    seen: list[BaseException] = []

    async def main() -> None:
        try:
            await handle(server, "add")
        except BaseException as exc:  # noqa: BLE001 - whatever comes out is what is looked at
            seen.append(exc)

    asyncio.run(main())
    probe.detach()
    assert len(seen) == 1 and seen[0] is fault
    assert kept.only("add").outcome == outcome


@pytest.mark.parametrize(
    "part",
    [
        "capture.hub:Hub.begin",
        "capture.loop_monitor:LoopMonitor.enter",
        "capture.loop_monitor:LoopMonitor.leave",
        "capture.live_requests:LiveRequests.finished",
        "capture.live_requests:LiveRequests.end",
        "adapters.loops:Loops._follow",
        "adapters.mcp1:now_ns",
    ],
)
async def test_part_that_raises_leaves_the_answer_as_it_is(
    part: str, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    breaker = Breaker(monkeypatch, f"mcp_probe.{part}", 0)
    server = OldServer()
    probe = mcp_probe.attach(server)
    for _ in range(3):
        _, answers = await handle(server, "add")
        assert len(answers) == 1
    probe.detach()
    hooks = dict(probe._hub.hooks)  # not before: the collector may meet the same part until then
    assert breaker.hits > 0
    disabled = [name for name, state in hooks.items() if state.startswith("disabled after Fault")]
    assert disabled
    assert sorted(log.messages) == sorted(f"mcp_probe: hook {name} is disabled" for name in disabled)
