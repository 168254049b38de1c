"""httpx behind a proxy and over HTTP/2, against small real ones on loopback; and versions that no hook knows."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import httpx
import pytest
import urllib3
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from mcp_probe.adapters.waits import aiohttp as aiohttp_hooks
from mcp_probe.adapters.waits import httpcore as httpcore_hooks
from mcp_probe.model import UNKNOWN_HOLDER
from mcp_probe.session import Probe
from tests.adapters.test_http_arrival import tls_contexts
from tests.adapters.waits.backend import serving
from tests.adapters.waits.calls import check_phase, opened
from tests.capture.test_awaits import Scene, play
from tests.kept import keep

DELAY_S = 0.06
HERE = f"{__file__}:"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port at which ``serve`` gets each connection, on a thread of its own."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    def serve_one(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def tunnel(client: socket.socket) -> None:
    """A proxy that knows CONNECT, and takes its time for it."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(65536)
    host, _, port = head.split(b" ")[1].partition(b":")
    time.sleep(DELAY_S)
    with socket.create_connection((host.decode(), int(port))) as server:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        while True:
            for ready in select.select([client, server], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                (server if ready is client else client).sendall(data)


def test_a_tunnel_is_named_by_its_proxy_and_what_goes_through_it_by_the_backend(tmp_path: Path) -> None:
    tls, trusting = tls_contexts(tmp_path)
    with serving(tls, first_byte=DELAY_S) as backend, listening(tunnel) as port:

        async def scenario(scene: Scene) -> None:
            proxy = f"http://user:hunter2@127.0.0.1:{port}"
            async with httpx.AsyncClient(proxy=proxy, verify=trusting) as client:
                await scene.call("call", lambda: client.get(f"{backend.address}/x"))()

        scene = play("asyncio", scenario)
    connects = [one for one in scene.awaits("call", "connect") if not one.looks]
    by_phase = {one.phase: one.object for one in connects}
    assert by_phase["tcp"] == f"proxy://127.0.0.1:{port}"
    assert by_phase["tls"] == backend.address
    asked = [one for one in connects if one.phase is None]  # for the way
    assert {one.object for one in asked} == {f"proxy://127.0.0.1:{port}"}
    assert {one.object for one in scene.awaits("call", "http") if not one.looks} == {backend.address}
    check_phase(scene, "call", "first-byte", DELAY_S * 1000)
    check_phase(scene, "call", "connect", DELAY_S * 1000)
    assert opened(scene, "call") == 1
    assert "hunter2" not in repr(scene.kept.frames)


def test_plain_http_by_a_proxy_is_a_connection_to_the_proxy_and_a_request_to_the_backend() -> None:
    with serving(first_byte=DELAY_S) as proxy:  # it answers whatever it is asked for

        async def scenario(scene: Scene) -> None:
            async with httpx.AsyncClient(proxy=proxy.address) as client:
                await scene.call("call", lambda: client.get("http://shop.example:8080/x"))()

        scene = play("asyncio", scenario)
    [connect] = [one for one in scene.awaits("call", "connect") if not one.looks]
    assert (connect.object, connect.opened) == (f"proxy://127.0.0.1:{proxy.port}", 1)
    assert {one.object for one in scene.awaits("call", "http") if not one.looks} == {"http://shop.example:8080"}
    check_phase(scene, "call", "first-byte", DELAY_S * 1000)


def serve_http2(connection: socket.socket) -> None:
    """Answers each request after a while, all that came together at once."""
    http2 = H2Connection(config=H2Configuration(client_side=False))
    http2.initiate_connection()
    connection.sendall(http2.data_to_send())
    while data := connection.recv(65536):
        asked = [event.stream_id for event in http2.receive_data(data) if isinstance(event, RequestReceived)]
        if asked:
            time.sleep(DELAY_S)
        for stream in asked:
            http2.send_headers(stream, [(":status", "200"), ("content-length", "2")])
            http2.send_data(stream, b"ok", end_stream=True)
        connection.sendall(http2.data_to_send())


def test_calls_over_http2_share_one_connection_and_wait_for_no_pool() -> None:
    names = [f"call-{number}" for number in range(3)]
    with listening(serve_http2) as port:

        async def scenario(scene: Scene) -> None:
            limits = httpx.Limits(max_connections=1)
            async with httpx.AsyncClient(http1=False, http2=True, limits=limits) as client:

                async def get() -> None:
                    assert (await client.get(f"http://127.0.0.1:{port}/x")).http_version == "HTTP/2"

                await scene.call("first", get)()
                async with anyio.create_task_group() as tasks:
                    for name in names:
                        tasks.start_soon(scene.call(name, get))

        scene = play("asyncio", scenario)
    assert opened(scene, "first", *names) == 1
    for name in ("first", *names):
        hooked = [one for one in scene.awaits(name, "http", "connection-pool") if not one.looks]
        assert {one.object for one in hooked if one.kind == "http"} == {f"http://127.0.0.1:{port}"}
        assert all(one.limit is None for one in hooked)
        # A machine that stands still makes a wait of which nobody can say who held it.
        assert {part.operation for one in hooked for part in one.holders} <= {UNKNOWN_HOLDER}
        check_phase(scene, name, "first-byte", DELAY_S * 1000)


# --- versions that are not known ---


class OtherPool:
    """A pool whose method has another name."""


async def by_httpx(address: str) -> None:
    async with httpx.AsyncClient() as client:
        await client.get(address)


async def by_aiohttp(address: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        await response.read()


async def by_urllib3(address: str) -> None:
    def ask() -> None:
        with urllib3.PoolManager() as pool:
            pool.request("GET", address)

    await anyio.to_thread.run_sync(ask)


async def twice(called: Callable[[str], Any], address: str) -> None:
    await called(address)
    await called(address)


UNKNOWN: dict[str, tuple[Callable[[str], Any], tuple[Any, str, Any], str]] = {
    "httpcore": (by_httpx, (httpcore_hooks, "_NEEDED", (("AsyncConnectionPool", "handle_otherwise"),)), "httpcore"),
    "aiohttp": (by_aiohttp, (aiohttp_hooks, "_SIGNALS", ("on_something_else",)), "aiohttp"),
    "urllib3": (by_urllib3, (urllib3.connectionpool, "HTTPConnectionPool", OtherPool), "urllib3"),
}
MOST_TRIES = 6


@pytest.mark.parametrize("library", UNKNOWN)
def test_a_version_that_no_hook_knows_is_said_once_and_named_by_looks(
    library: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask, (owner, name, other), hook = UNKNOWN[library]
    monkeypatch.setattr(owner, name, other)
    caplog.set_level(logging.WARNING, "mcp_probe")
    looked: list[str] = []
    with serving(first_byte=0.15) as backend:
        for _ in range(MOST_TRIES):  # a busy machine may let nobody look in that time
            caplog.clear()
            probe = Probe()
            kept = keep(probe)

            try:
                asyncio.run(twice(probe.profile(ask), f"{backend.address}/x"))
                state = probe._hub.hooks[f"awaits ({hook})"]
            finally:
                probe.detach()
            awaits = [one for record in kept.requests(kind="function") for one in record.awaits or ()]
            assert [one for one in awaits if one.object == backend.address] == []
            told = [one.getMessage() for one in caplog.records if f"awaits ({hook}) is off" in one.getMessage()]
            assert len(told) == 1 and "looks name its calls" in told[0] and told[0].endswith(state)
            looked = [one.object for one in awaits if one.looks and (one.where or "").startswith(HERE)]
            if looked:
                break
    assert looked
