# No server at all: @probe.profile measures any async function, here one whose caller waits for another.
#
# Run it:   python examples/decorator.py
# The report appears on stderr at the end.
# Needs: pip install mcp-probe-profiler

import asyncio
import time

import mcp_probe

probe = mcp_probe.Probe(report="stderr")


@probe.profile
async def price(item: str) -> int:
    await asyncio.sleep(0.01)
    return {"tea": 320, "cake": 450}[item]


@probe.profile
async def stock_taking() -> None:
    time.sleep(0.2)  # holds the event loop: the report says so, with this line


async def main() -> None:
    for _ in range(10):
        await asyncio.gather(price("tea"), stock_taking(), price("cake"))


if __name__ == "__main__":
    asyncio.run(main())
