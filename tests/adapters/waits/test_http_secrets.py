"""Of an outbound call only scheme, host and port leave the process."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest
import requests

from mcp_probe.report.jsonfile import write
from tests.adapters.waits.backend import serving
from tests.capture.test_awaits import Scene, play

SECRETS = ("hunter2", "swordfish", "opensesame", "tr0ub4dor")
"""In userinfo, path, query and headers."""


async def by_httpx(url: str, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient() as client:
        await client.get(url, headers=headers)


async def by_httpx2(url: str, headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient() as client:
        await client.get(url, headers=headers)


async def by_aiohttp(url: str, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        await response.read()


async def by_requests(url: str, headers: dict[str, str]) -> None:
    await anyio.to_thread.run_sync(lambda: requests.get(url, headers=headers, timeout=60))


@pytest.mark.parametrize("get", [by_httpx, by_httpx2, by_aiohttp, by_requests])
def test_no_part_of_an_address_but_scheme_host_and_port_is_kept(get: Callable[..., Awaitable[Any]]) -> None:
    summaries = []
    with serving(first_byte=0.05) as backend:
        url = f"http://hunter2:hunter2@127.0.0.1:{backend.port}/swordfish?q=opensesame"

        async def scenario(scene: Scene) -> None:
            await scene.call("call", lambda: get(url, {"X-Token": "tr0ub4dor"}))()
            summaries.append(scene.probe.snapshot())

        scene = play("asyncio", scenario)
    assert backend.seen[0].target == "/swordfish?q=opensesame"
    assert backend.address in {one.object for one in scene.awaits("call", "http")}
    as_json = io.StringIO()
    write(summaries[0], as_json)
    kept = repr(scene.kept.frames) + repr(scene.kept.lines) + repr(summaries) + as_json.getvalue()
    assert backend.address in kept
    assert [secret for secret in SECRETS if secret in kept] == []
