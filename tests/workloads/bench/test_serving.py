"""Bundled servers for real: each transport is served, and each phase has the readings of its own requests."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest

from mcp_probe.aggregate.explain import reasons
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import side_by_side
from mcp_probe.workloads.client import Call

SERVER = "mcp_probe.workloads.servers.delays"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "sse", "json"])
async def test_each_transport_is_served_and_read(transport: Literal["stdio", "sse", "json"]) -> None:
    async with Bench(quick=True).server("mcp_probe.workloads.servers.twin", transport=transport) as server:
        with server.phase("adding"):
            answers = await server.session.one_by_one([Call("add", {"a": 1, "b": n}) for n in range(7)])
        await server.session.call("add", a=1, b=1)
    assert all(answer.error is None for answer in answers)
    seen = server.seen("adding")
    assert [each.name for each in seen.requests] == ["add"] * 7
    assert len([each for each in server.seen().requests if each.name == "add"]) == 8
    assert server.why("adding")


@pytest.mark.workloads
@pytest.mark.slow
async def test_two_phases_of_one_server_have_a_reason_each() -> None:
    async with Bench(quick=True).server(SERVER, "--pool", "2") as server:
        with server.phase("pool"):
            pooled = await server.session.pipelined([Call("pooled", {"delay_ms": 60})] * 8)
        with server.phase("waits"):
            waited = await server.session.pipelined([Call("wait", {"delay_ms": 200})] * 8)
    assert [answer.error for answer in (*pooled, *waited)] == [None] * 16
    at_pool = [reason for reason in reasons(server.seen("pool")) if reason.code in ("waves", "thread-wait")]
    assert "has 2 threads" in at_pool[0].sentence
    assert not {"waves", "thread-wait"} & {reason.code for reason in reasons(server.seen("waits"))}


async def test_a_server_that_cannot_start_says_what_it_said() -> None:
    with pytest.raises(LaunchError, match=r"The server no_such_module did not start .*No module named no_such_module"):
        async with Bench(quick=True).server("no_such_module"):
            pass


async def test_an_http_server_that_ends_is_not_waited_for() -> None:
    with pytest.raises(LaunchError, match="it ended with status 1"):
        async with Bench(quick=True).server("no_such_module", transport="json", probe=False):
            pass


async def test_readings_are_not_there_before_the_end() -> None:
    async with Bench(quick=True).server(SERVER, probe=False) as server:
        with pytest.raises(LaunchError, match="no readings"):
            server.seen()


@pytest.mark.workloads
@pytest.mark.slow
async def test_an_interrupted_server_leaves_its_readings_and_a_phase_that_never_was_has_none() -> None:
    with pytest.raises(RuntimeError, match="interrupted"):
        async with Bench(quick=True).server(SERVER) as server:
            with server.phase("done"):
                await server.session.call("wait", delay_ms=1)
            later = server.later("done")
            raise RuntimeError("interrupted")
    assert "in the server" in later()
    with pytest.raises(LaunchError, match="no phase later"):
        server.why("later")


class Entered:
    """Counts how many of its kind are entered, and waits for the others of its group to be."""

    now = most = 0

    def __init__(self, together: anyio.Event | None = None, *, fails: bool = False) -> None:
        self._together, self._fails = together, fails

    async def __aenter__(self) -> str:
        Entered.now += 1
        Entered.most = max(Entered.most, Entered.now)
        if self._fails:
            Entered.now -= 1
            raise LaunchError("it did not start")
        if self._together is not None:
            await self._together.wait()
        return "running"

    async def __aexit__(self, *failed: object) -> None:
        Entered.now -= 1


async def test_contexts_are_entered_side_by_side_and_all_left() -> None:
    Entered.now = Entered.most = 0
    together = anyio.Event()

    class Last(Entered):
        async def __aenter__(self) -> str:
            together.set()
            return await super().__aenter__()

    with anyio.fail_after(30):
        async with side_by_side([Entered(together), Entered(together), Last(together)]) as running:
            assert (running, Entered.now) == (["running"] * 3, 3)
    assert (Entered.most, Entered.now) == (3, 0)


async def test_what_leaving_raises_does_not_hide_why_they_are_left() -> None:
    class Worse(Entered):
        async def __aexit__(self, *failed: object) -> None:
            await super().__aexit__(*failed)
            raise LaunchError("no readings either")

    Entered.now = 0
    with anyio.fail_after(30), pytest.raises(RuntimeError, match="the first reason"):
        async with side_by_side([Worse(), Entered()]):
            raise RuntimeError("the first reason")
    assert Entered.now == 0
    with anyio.fail_after(30), pytest.raises(LaunchError, match="no readings either"):
        async with side_by_side([Worse(), Entered()]):
            pass


async def test_one_that_does_not_start_takes_the_others_down() -> None:
    Entered.now = 0
    with anyio.fail_after(30), pytest.raises(LaunchError, match="it did not start"):
        async with side_by_side([Entered(), Entered(fails=True), Entered()]):
            raise AssertionError("nobody may use them")
    assert Entered.now == 0
