"""The server of ``truth_server`` over HTTP: ``python -m tests.adapters.http_truth_server '{"server": …}'``.

Prints a line once it listens. Ends, and completes its recording, at SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

import mcp_probe
from tests.adapters.truth_server import build


@dataclass(frozen=True)
class Served:
    """How it is served. ``bind``: as hypercorn writes it, ``host:port`` or ``unix:path``."""

    server: str  # httptools, h11, hypercorn
    loop: str
    bind: str
    recording: str
    tools: tuple[str, ...]  # that do nothing, one for each request to be found again
    certificate: str = ""
    key: str = ""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.adapters.http_truth_server", json.dumps(asdict(self))]


def main() -> None:
    """Serve under a probe that records."""
    served = Served(**json.loads(sys.argv[1]))
    server = build()

    async def nothing() -> str:
        return "nothing"

    for name in served.tools:
        server.add_tool(nothing, name=name)
    mcp_probe.attach(server, record=served.recording)
    app = server.streamable_http_app(json_response=True)
    (_hypercorn if served.server == "hypercorn" else _uvicorn)(app, served)


def _uvicorn(app: Any, served: Served) -> None:
    import uvicorn

    class Telling(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("listening", flush=True)

    kind, _, path = served.bind.partition(":")
    host, _, port = served.bind.rpartition(":")
    where: dict[str, Any] = {"uds": path} if kind == "unix" else {"host": host.strip("[]"), "port": int(port)}
    tls = {"ssl_certfile": served.certificate, "ssl_keyfile": served.key} if served.certificate else {}
    config = uvicorn.Config(app, http=served.server, loop=served.loop, log_level="error", ws="none", **where, **tls)  # type: ignore[arg-type]
    Telling(config).run()


def _hypercorn(app: Any, served: Served) -> None:
    from hypercorn.config import Config

    config = Config()
    config.bind = [served.bind]
    if served.certificate:
        config.certfile, config.keyfile = served.certificate, served.key
        config.alpn_protocols = ["http/1.1"]

    if served.loop == "trio":
        import trio
        from hypercorn.trio import serve as serve_on_trio

        async def run_on_trio() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(serve_on_trio, app, config)
                print("listening", flush=True)
                with trio.open_signal_receiver(signal.SIGTERM) as signals:
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

        trio.run(run_on_trio)
        return
    import asyncio

    from hypercorn.asyncio import serve

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        print("listening", flush=True)  # the client tries until it does
        await serve(app, config, shutdown_trigger=stop.wait)

    if served.loop == "uvloop":
        import uvloop

        uvloop.run(run())
    else:
        asyncio.run(run())


if __name__ == "__main__":
    main()
