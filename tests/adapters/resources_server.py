# mypy: ignore-errors
"""A server with a tool that blocks the loop, on whichever SDK runs this: resources_server.py mcp2|mcp1|fastmcp [own].

``own``: it has resources of its own, one of them under the probe's scheme.
"""

from __future__ import annotations

import sys
import time


def make(which):
    if which == "mcp2":
        from mcp.server.mcpserver import MCPServer

        return MCPServer("slow")
    if which == "mcp1":
        from mcp.server.fastmcp import FastMCP

        return FastMCP("slow")
    from fastmcp import FastMCP

    return FastMCP("slow")


server = make(sys.argv[1])


@server.tool()
async def resize() -> str:
    time.sleep(0.06)  # the fault
    return "done"


@server.tool()
async def loaded() -> str:
    """What of the layers that read frames is in this process."""
    return " ".join(
        name for name in sorted(sys.modules) if name.startswith(("mcp_probe.aggregate", "mcp_probe.report"))
    )


if "own" in sys.argv[2:]:

    @server.resource("note://one")
    def note() -> str:
        return "one"

    @server.resource("probe://report")
    def mine() -> str:
        return "the server's own"


if __name__ == "__main__":
    server.run()
