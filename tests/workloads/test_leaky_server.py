from __future__ import annotations

from typing import Any

from mcp.client import Client

from mcp_probe.workloads import leaky_server


async def call(client: Client, tool: str, number: int) -> Any:
    result = await client.call_tool(tool, {"number": number})
    assert not result.is_error
    return result.structured_content


async def test_its_tools_keep_what_their_texts_say() -> None:
    before = len(leaky_server._history)
    leaky_server._rendered.cache_clear()
    async with Client(leaky_server.server) as client:
        for number in range(200):
            await call(client, "recall", number)
        assert await call(client, "remember", 1) == {"result": before + 1}
        assert await call(client, "remember", 1) == {"result": before + 2}
        assert await call(client, "clean", 5) == {"result": 100_000}
        assert await call(client, "tangle", 5) == {"result": 5}
    assert leaky_server._rendered.cache_info().currsize == 128
    assert leaky_server._history[-1].__sizeof__() == leaky_server.LEAK_BYTES
    del leaky_server._history[before:]
