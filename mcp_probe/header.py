"""What the header of a recording says: which server this is, on which SDK, loop and interpreter."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from mcp_probe import __version__, native
from mcp_probe.capture.drain import cpus, memory_limit_bytes
from mcp_probe.capture.hub import Hub
from mcp_probe.clock import resolution_ns
from mcp_probe.model import Header


@dataclass(frozen=True, slots=True)
class Known:
    """What one session knows of its server, and may learn more of."""

    start_unix: float
    start_ns: int
    name: str | None = None
    package: str | None = None  # mcp or fastmcp
    transports: frozenset[str] = frozenset()
    full: bool = False  # a Timeline follows each record


def changes_with(known: Known, hub: Hub) -> tuple[object, ...]:
    """A value that changes whenever :func:`header_of` may."""
    facts = (hub.behind_proxy, hub.awaits.active)
    return known, len(hub.loop_names), len(hub.transports), facts, tuple(hub.hooks.copy().items()), len(sys.modules)


def header_of(known: Known, hub: Hub) -> Header:
    """The header as of now. Reads files: collector's thread."""
    package = known.package or package_of(None)
    loops = sorted(hub.loop_names) or ["unknown"]
    transports = sorted(known.transports | hub.transports.keys()) or ["unknown"]
    return Header(
        probe_version=__version__,
        server=known.name or _program(),
        sdk=package,
        sdk_version=_version_of(package),
        transport=", ".join(transports),
        loop=", ".join(loops),
        python=".".join(str(part) for part in sys.version_info[:3]),
        pid=os.getpid(),
        start_unix=known.start_unix,
        start_ns=known.start_ns,
        timer_resolution_ns=resolution_ns(),
        hooks=tuple(sorted(hub.hooks.copy().items())),
        accelerator=native.state(),
        memory=hub.memory.state,
        memory_limit_bytes=memory_limit_bytes(),
        behind_proxy=hub.behind_proxy,
        cpus=cpus(),
        client_spans=client_spans(),
        awaits="on" if hub.awaits.active else "off",
        full=known.full,
    )


def package_of(server: Any) -> str:
    """The package that ``server`` is of: mcp or fastmcp."""
    package: str = type(server).__module__.split(".")[0] if server is not None else "mcp"
    if package in ("mcp", "fastmcp"):
        return package
    return "fastmcp" if "fastmcp" in sys.modules else "mcp"


@cache
def _version_of(package: str) -> str:
    """Asked with every batch of frames, answered from the disk once."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


_INSTRUMENTED = {
    "http": ("aiohttp_client", "httpx", "requests", "urllib", "urllib3"),
    "db": (
        *("aiomysql", "aiopg", "asyncpg", "dbapi", "elasticsearch", "mysql", "mysqlclient", "psycopg"),
        *("psycopg2", "pymongo", "pymssql", "pymysql", "redis", "sqlalchemy", "sqlite3"),
    ),
}


def client_spans() -> tuple[str, ...]:
    """Kinds of backends for whose calls a library of OpenTelemetry's makes client spans; so does Logfire, through it.

    Told by its module being there: who imports an instrumentation does so to switch it on. If somebody imports one and
    does not, no span says what those calls waited for; two spans would say it otherwise.
    """
    return tuple(
        kind
        for kind, libraries in _INSTRUMENTED.items()
        if any(f"opentelemetry.instrumentation.{library}" in sys.modules for library in libraries)
    )


def _program() -> str:
    """What stands for the name of a server that only the middleware, streams or functions are known of."""
    path = Path(sys.argv[0] if sys.argv else "")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name and not name.startswith("-") else "server"
