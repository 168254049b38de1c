# What the probe touched is put back by detach(): python examples/gone.py prints `False True`.
import asyncio
import socket
import threading

from mcp.server.mcpserver import MCPServer

import mcp_probe


def touched() -> tuple[object, ...]:
    return asyncio.events.Handle, socket.getaddrinfo, threading.active_count()


before = touched()
probe = mcp_probe.attach(MCPServer("x"))
print(touched() == before, end=" ")
probe.detach()
print(touched() == before)
