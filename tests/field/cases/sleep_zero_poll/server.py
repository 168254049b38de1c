"""A tool that polls with sleep(0) until a timer has finished the job."""

import asyncio

from fastmcp import FastMCP

server = FastMCP("jobs")


@server.tool
async def run_job(number: int) -> str:
    done = False

    def finish() -> None:
        nonlocal done
        done = True

    asyncio.get_running_loop().call_later(0.15, finish)
    while not done:
        await asyncio.sleep(0)
    return f"job {number} done"


@server.tool
async def ping() -> str:
    return "pong"


if __name__ == "__main__":
    server.run(show_banner=False, log_level="warning")
