# A low-level server with a transport loop of its own; the probe is told of the streams by probe.streams().
#
# An MCP client starts it:   python examples/lowlevel_loop.py
# The report appears on stderr when the client closes the connection.
# Needs: pip install mcp-probe-profiler "mcp>=2"

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

import mcp_probe

PRICE = types.Tool(name="price", description="Price of an item, in cents.", input_schema={"type": "object"})


async def list_tools(ctx: ServerRequestContext, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[PRICE])


async def call_tool(ctx: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
    cents = {"tea": 320, "cake": 450}[(params.arguments or {})["item"]]
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(cents))])


async def main() -> None:
    server = Server("shop", on_list_tools=list_tools, on_call_tool=call_tool)
    probe = mcp_probe.attach(server, report="stderr")
    async with stdio_server() as (read, write):
        await server.run(*probe.streams(read, write), server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
