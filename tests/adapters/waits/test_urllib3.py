"""What calls of requests and urllib3 wait for on worker threads, against a backend with known delays."""

from __future__ import annotations

import http.client
import time
from typing import Any

import anyio
import anyio.to_thread
import pytest
import requests
import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.response
from requests import get as imported_by_name

from mcp_probe.session import Probe
from tests.adapters.waits.backend import serving
from tests.adapters.waits.calls import LATE_S, at_once, calls, check_phase, opened
from tests.capture.test_awaits import Scene, play
from tests.ports import free_port
from tests.turns import MS

HERE = f"{__file__}:"


async def in_thread(call: Any) -> None:
    await anyio.to_thread.run_sync(call)


@pytest.mark.parametrize("chunked", [False, True])
def test_calls_of_requests_in_jobs_are_named_by_their_backend_and_count_its_connections(chunked: bool) -> None:
    names = [f"call-{number}" for number in range(3)]
    read_from: dict[str, int] = {}

    def noting(name: str) -> Any:
        """A hook of requests', called just before it reads the body."""
        return {"response": lambda *_, **__: read_from.__setitem__(name, time.monotonic_ns())}

    with serving(first_byte=LATE_S, between=0.04, chunks=2, chunked=chunked) as backend, requests.Session() as session:

        async def scenario(scene: Scene) -> None:
            await at_once(scene, names, lambda name: in_thread(lambda: ask(session.get, name)))
            await scene.call("reuses", lambda: in_thread(lambda: ask(session.get, "reuses")))()
            await scene.call("alone", lambda: in_thread(lambda: ask(imported_by_name, "alone")))()

        def ask(get: Any, name: str) -> None:
            get(f"{backend.address}/{name}", hooks=noting(name))

        scene = play("asyncio", scenario)
    assert opened(scene, *names) == 3  # all at once: each needs one
    assert (opened(scene, "reuses"), opened(scene, "alone")) == (0, 1)
    assert backend.connections == 4
    for name in (*names, "reuses", "alone"):
        assert calls(scene, name) == 1
        ours = [one for one in scene.awaits(name, "http", "connect") if one.object == backend.address]
        assert {one.stage for one in ours} == {"executor_run"}
        assert all((one.where or "").startswith(HERE) for one in ours)
        check_phase(scene, name, "http", 100, ours)
        check_phase(scene, name, "body", (backend.of(f"/{name}").last_ns - read_from[name]) / MS, ours)


def test_a_call_that_is_tried_again_is_two_and_one_that_is_refused_is_none() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"

    def refused() -> None:
        with pytest.raises(requests.ConnectionError):
            requests.get(nobody, timeout=5)

    def redirected() -> None:
        with urllib3.PoolManager() as pools:
            assert pools.request("GET", first.address).status == 200

    with serving(first_byte=LATE_S) as last, serving(first_byte=LATE_S, moved_to=last.address) as first:

        async def scenario(scene: Scene) -> None:
            await scene.call("refused", lambda: in_thread(refused))()
            await scene.call("redirected", lambda: in_thread(redirected))()

        scene = play("asyncio", scenario)
    assert (calls(scene, "refused"), opened(scene, "refused")) == (0, 0)
    assert {one.object for one in scene.awaits("refused", "connect")} == {nobody}
    assert (calls(scene, "redirected"), opened(scene, "redirected")) == (2, 2)
    assert {one.object for one in scene.awaits("redirected", "http") if one.ns > 5 * MS} == {
        first.address,
        last.address,
    }


def test_the_probe_leaves_nothing_behind() -> None:
    owners: list[tuple[Any, str]] = [
        (urllib3.connectionpool.HTTPConnectionPool, "urlopen"),
        (urllib3.connection.HTTPConnection, "connect"),
        (urllib3.connection.HTTPSConnection, "connect"),
        (urllib3.response.HTTPResponse, "read"),
        (urllib3.response.HTTPResponse, "read_chunked"),
    ]
    before = [vars(owner)[name] for owner, name in owners]
    below = http.client.HTTPConnection.connect
    probe = Probe()
    assert all(vars(owner)[name] is not then for (owner, name), then in zip(owners, before, strict=True))
    assert http.client.HTTPConnection.connect is below
    probe.detach()
    assert all(vars(owner)[name] is then for (owner, name), then in zip(owners, before, strict=True))
