"""The counting server in several processes of uvicorn that share a socket; this process itself serves nothing."""

from __future__ import annotations

import inspect
from typing import Any

from mcp_probe.workloads.servers import serving

WORKER_LIMIT_S = 120
"""uvicorn kills a worker that does not answer its parent for 5 s: on a busy machine, one that is still importing."""


def app() -> Any:
    """What each worker serves: made there, so that no other process has a server."""
    from mcp_probe.workloads.servers.counting import server

    return server.streamable_http_app(json_response=True)


def main() -> None:
    """Serves until SIGTERM, which uvicorn hands on to the workers."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    parser = serving.parser("The counting server, in several processes.")
    parser.add_argument("--workers", type=int, default=1, help="how many")
    options = parser.parse_args()
    config = uvicorn.Config(
        f"{__spec__.name}:app",
        factory=True,
        log_level="warning",
        access_log=False,
        loop=options.loop,
        http=options.parser,
        timeout_keep_alive=3600,
        workers=options.workers,
    )
    config.timeout_worker_healthcheck = WORKER_LIMIT_S
    # Older versions want what a worker runs, newer ones know it.
    runs = {"target": uvicorn.Server(config).run} if "target" in inspect.signature(Multiprocess).parameters else {}
    with serving.listening(options) as listener:
        Multiprocess(config, sockets=[listener], **runs).run()


if __name__ == "__main__":
    main()
