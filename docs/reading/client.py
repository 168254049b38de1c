import sys

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(command: list[str]) -> None:
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(stdio_client(server)) as client:
        for number in range(10):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "resize", {"image": f"photo {number}"})
                for size in ("small", "large", "small", "large"):
                    group.start_soon(client.call_tool, "price", {"size": size})


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
