"""The server of document 002, with the SDK: two tools, one resource, one prompt. Stdio or streamable HTTP."""

from __future__ import annotations

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving

RESOURCE = "file:///test.txt"
CONTENT = "This is a test file content."

server = MCPServer("twin", log_level="WARNING")


@server.tool()
async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool()
async def concat(str1: str, str2: str) -> str:
    """Two texts, one after the other."""
    return str1 + str2


@server.resource(RESOURCE, name="test.txt", mime_type="text/plain")
async def test_file() -> str:
    """A short text."""
    return CONTENT


@server.prompt()
async def write_essay(topic: str) -> str:
    """Asks for an essay."""
    return f"Please write an essay about {topic}."


if __name__ == "__main__":
    serving.main(server, "Document 002's server: two tools, a resource, a prompt.")
