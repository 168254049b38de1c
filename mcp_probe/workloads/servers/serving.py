"""How a bundled server serves: stdio, or streamable HTTP under uvicorn with SSE or JSON answers."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer


def parser(about: str) -> argparse.ArgumentParser:
    """With the options that every bundled server has; add its own, then hand what was parsed to :func:`serve`."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--http", choices=("sse", "json"), help="streamable HTTP instead of stdio, with these answers")
    made.add_argument("--port", type=int, default=0, help="HTTP port (default: a free one)")
    made.add_argument("--port-file", type=Path, help="the port is written here once it accepts connections")
    made.add_argument("--stateless", action="store_true", help="HTTP without sessions")
    made.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop")
    made.add_argument("--parser", choices=("h11", "httptools"), default="h11", help="what parses HTTP")
    return made


def serve(server: MCPServer, options: argparse.Namespace, **more: Any) -> None:
    """Serves until stdin ends, or until SIGTERM for HTTP; ``more``: for the SDK's app."""
    if options.http is None:
        anyio.run(server.run_stdio_async, backend_options={"use_uvloop": options.loop == "uvloop"})
        return
    import uvicorn

    app = server.streamable_http_app(json_response=options.http == "json", stateless_http=options.stateless, **more)
    # uvicorn would take uvloop and httptools where they happen to be installed: another machine, other figures.
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, loop=options.loop, http=options.parser, timeout_keep_alive=3600
    )
    with listening(options) as listener:
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def listening(options: argparse.Namespace) -> Iterator[socket.socket]:
    """A socket that accepts connections; its port stands in the file that was asked for."""
    # asyncio turns Nagle's algorithm off only where the socket says that it is TCP's, which `create_server` leaves
    # open: an answer in two writes then waits 40 ms for the client's delayed acknowledgement.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", options.port))
        listener.listen(2048)
        if options.port_file is not None:
            partly = options.port_file.with_suffix(".partly")
            partly.write_text(str(listener.getsockname()[1]))
            os.replace(partly, options.port_file)
        yield listener


def main(server: MCPServer, about: str, arguments: Sequence[str] | None = None) -> None:
    """For servers without options of their own."""
    serve(server, parser(about).parse_args(arguments))
