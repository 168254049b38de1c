"""The scenarios' servers and clients for real: widths are counted by the probe on both sides, never timed."""

from __future__ import annotations

import asyncio

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.facade import Facade
from mcp_probe.workloads.scenarios.providers import followed, threaded_provider
from mcp_probe.workloads.scenarios.readings import longest_wait_ms, most_in_flight
from mcp_probe.workloads.scenarios.tables import burst, calls_of, through_session

pytestmark = [pytest.mark.workloads, pytest.mark.slow]
DELAYS_MS = {"wait": 1500, "pooled": 200, "blocking": 20}  # long enough for all to have come, however busy the machine
SERVER = "mcp_probe.workloads.servers.delays"


async def test_a_pool_in_front_of_the_client_is_the_width_that_the_server_sees() -> None:
    async with threaded_provider(SERVER) as provider:
        facade = Facade(provider.client, 4)
        try:
            with followed() as calls:
                invoke = calls.follow(facade.invoke)
                with provider.phase("12 calls"):
                    await asyncio.gather(*(invoke("wait", delay_ms=150) for _ in range(12)))
        finally:
            facade.close()
    at_server = provider.seen("12 calls").requests
    assert (len(at_server), most_in_flight(at_server)) == (12, 4)
    at_client = calls.seen.requests
    assert len(at_client) == 12
    waited = [job for request in at_client for job in request.jobs if job.start_ns is not None]
    assert len(waited) == 12
    # The last four came after two whole waves, 300 ms: no load makes that shorter.
    assert (longest_wait_ms(at_client) or 0) > 200
    pool = next(pool for pool in calls.seen.summary.executors if "facade" in pool.name)
    assert (pool.max, pool.active_peak, pool.pending_peak) == (4, 4, 8)


async def test_a_session_s_calls_are_in_the_server_together_unless_the_tool_forbids_it() -> None:
    async with Bench(quick=True).server(SERVER, "--pool", "3") as server:
        one = through_session(server.session)
        for tool in ("wait", "pooled", "blocking"):
            with server.phase(tool):
                await burst(one, calls_of(tool, 10, DELAYS_MS[tool]))()
        with server.phase("one by one"):
            await burst(one, calls_of("wait", 5, 5), one_by_one=True)()
    assert most_in_flight(server.seen("wait").requests) == 10
    assert most_in_flight(server.seen("blocking").requests) == 1
    assert most_in_flight(server.seen("one by one").requests) == 1
    jobs = [job for request in server.seen("pooled").requests for job in request.jobs]
    changes = [change for job in jobs for change in ((job.start_ns or 0, 1), (job.finish_ns or 0, -1))]
    level, most = 0, 0
    for _, change in sorted(changes):
        level += change
        most = max(most, level)
    assert (len(jobs), most) == (10, 3)


async def test_computed_answers_are_right_whichever_way_they_are_asked_for() -> None:
    async with Bench(quick=True).server("mcp_probe.workloads.servers.compute", probe=False) as server:
        calls = [Call("compute", {"item": item}) for item in range(40)]
        expected = [str(item + sum(k * k for k in range(item + 1))) for item in range(40)]
        assert [answer.text for answer in await server.session.pipelined(calls)] == expected
        assert [answer.text for answer in await server.session.one_by_one(calls)] == expected
