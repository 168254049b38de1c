"""What the load tests share: the raw server as a target, and a loop to run on."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mcp_probe.workloads.load import loops
from mcp_probe.workloads.load.connecting import connect
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.peer import Peer, Target

SERVER = Path(__file__).with_name("raw_server.py")
HTTP_SERVER = SERVER.with_name("raw_http_server.py")
T = TypeVar("T")


def raw_target(*arguments: str) -> Target:
    return Target(command=(sys.executable, str(SERVER), *arguments))


@contextmanager
def raw_http(*arguments: str) -> Iterator[str]:
    """URL of the raw HTTP server. It inherits the listening socket: no port to guess, and none to wait for."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        descriptor = listener.fileno()
        command = [sys.executable, str(HTTP_SERVER), str(descriptor), *arguments]
        process = subprocess.Popen(command, pass_fds=[descriptor])
        port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(30)


def tool(name: str, weight: float = 1.0, **arguments: Any) -> Call:
    return Call("tools/call", ({"name": name, "arguments": arguments},), weight)


def mix_of(*calls: Call, **settings: Any) -> Mix:
    return Mix(calls=calls, **{"warm_up": 0.0, "in_flight": 0, **settings})


def talk(target: Target, conversation: Callable[[Peer], Awaitable[T]]) -> T:
    """What ``conversation`` returns, held with a peer on the generator's own loop."""

    async def whole() -> T:
        async with connect(target) as peer:
            return await conversation(peer)

    return loops.run(whole())
