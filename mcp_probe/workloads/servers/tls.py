"""The counting server under hypercorn, with TLS and HTTP/2 where a certificate is given, else as plain HTTP/1.1."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from mcp_probe.workloads.servers import serving
from mcp_probe.workloads.servers.counting import server


def main() -> None:
    """Serves until SIGTERM."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    parser = serving.parser("The counting server under hypercorn.")
    parser.add_argument("--certificate", type=Path, help="PEM file of a certificate and its key")
    options = parser.parse_args()
    config = Config()
    config.loglevel = "WARNING"
    config.keep_alive_timeout = 3600
    config.keep_alive_max_requests = 1_000_000  # after a thousand it closes an HTTP/2 connection under a call
    config.alpn_protocols = ["h2", "http/1.1"]
    if options.certificate is not None:
        config.certfile = config.keyfile = str(options.certificate)
    app = server.streamable_http_app(json_response=True, stateless_http=options.stateless)

    async def run() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await serve(app, config, shutdown_trigger=over.wait)  # type: ignore[arg-type]

    with serving.listening(options) as listener:
        config.bind = [f"fd://{listener.fileno()}"]
        asyncio.run(run())


if __name__ == "__main__":
    main()
