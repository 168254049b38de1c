# Which tool leaks? Ask a server that is running: the tier of memory measurement is switched by its own code.
#
# An MCP client starts it:   python examples/leak_hunt.py
# It calls `hunt`, then `price` a hundred times, and closes the connection; the report on stderr names the tool that
# grows. To get the line that allocates what stays, too, hunt from the beginning:
#     mcp-probe run --memory leaks -- python your_server.py
# Needs: pip install mcp-probe-profiler "mcp>=2"

from mcp.server import MCPServer

import mcp_probe

server = MCPServer("shop")
probe = mcp_probe.attach(server, memory="light", report="stderr")
asked: list[dict[str, str]] = []


@server.tool()
async def price(item: str) -> int:
    """Price of an item, in cents. Leaks: nobody ever clears the list."""
    asked.append({"item": item, "note": f"somebody asked for {item} " + "again " * 100})
    return {"tea": 320, "cake": 450}[item]


@server.tool()
async def hunt(on: bool) -> str:
    """Begin to hunt for leaks, or go back to what costs next to nothing."""
    probe.memory = "leaks" if on else "light"
    return probe.memory


if __name__ == "__main__":
    server.run("stdio")
