import time

from mcp.server import MCPServer

server = MCPServer("pictures")


@server.tool()
async def price(size: str) -> int:
    """Price of a print, in cents."""
    return {"small": 320, "large": 950}[size]


@server.tool()
async def resize(image: str) -> str:
    """A smaller picture, made by a library that knows nothing of async."""
    time.sleep(0.15)
    return f"{image}, smaller"


if __name__ == "__main__":
    server.run("stdio")
