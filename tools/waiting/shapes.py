"""What clients ask of the servers, and how: each shape is one way to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.field.client import Client, Connection, Exchange, Http
from tools.field.servers import ROWS, Ask, Row, Setting, Transport

SERVER = Path(__file__).with_name("server.py")
MANY = 30
SDKS = {"mcp 2.3": "fastmcp4", "mcp 1.30": "mcp1"}
"""Each with its environment."""

Converse = Callable[[Client, Setting], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """``tools``: whose waiting is constructed, at least 100 ms a call."""

    name: str
    converse: Converse
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    shape: Shape
    row: Row

    @property
    def name(self) -> str:
        return f"{self.shape.name} {self.row.name}"


def asked(client: Client, tool: str, **arguments: Any) -> Exchange:
    return client.call(tool, arguments, label=tool)


def together(tool: str, seconds: float, count: int, rounds: int = 2) -> Converse:
    """``count`` calls in flight at once, ``rounds`` times."""

    def converse(client: Client, setting: Setting) -> None:
        for _ in range(rounds):
            client.wait([asked(client, tool, seconds=seconds) for _ in range(count)])

    return converse


def telling(client: Client, setting: Setting) -> None:
    """Each call tells its progress before it blocks, and after."""
    for _ in range(2):
        calls = []
        for number in range(8):
            call = {"name": "telling", "arguments": {"seconds": 0.05}, "_meta": {"progressToken": number}}
            calls.append(client.request("tools/call", call))
        client.wait(calls)


def short(client: Client, setting: Setting) -> None:
    """A few quick calls: the start of a server on stdio is what its client waits for."""
    for _ in range(5):
        client.wait([asked(client, "quick")])


def beside(client: Client, setting: Setting) -> None:
    """A call blocks the loop; over HTTP `GET /healthz` waits behind it, on stdio pings do."""
    for _ in range(3):
        blocking = asked(client, "on_the_loop", seconds=0.3)
        time.sleep(0.03)
        if isinstance(client, Http):
            healthz(client, 6)
        else:
            client.wait([client.request("ping") for _ in range(6)])
        client.wait([blocking])


def healthz(client: Http, count: int) -> None:
    """Ask another route of the app ``count`` times at once, and wait."""
    waiting = []
    for _ in range(count):
        connection, exchange = Connection(client.port), Exchange("GET /healthz", "route")
        exchange.sent_s = time.monotonic()
        connection.send("GET", "/healthz", {})
        waiting.append((connection, exchange))
    for connection, exchange in waiting:
        while not connection.complete:
            data, at_s = connection.receive()
            assert data, "the server closed the connection"
            connection.feed(data)
            exchange.answered_s = at_s
        connection.socket.close()
        client.exchanges.append(exchange)


def real(client: Client, setting: Setting) -> None:
    """A long and a quick call of a server that nobody here wrote, with pings, all at once."""
    for _ in range(3):
        calls = [client.call(one.tool, one.arguments, label="") for one in (setting.holding, setting.quick)]
        client.wait([*calls, *(client.request("ping") for _ in range(2))])


SHAPES = (
    Shape("in threads", together("in_thread", 0.15, 8), ("in_thread",)),
    Shape("awaits", together("in_steps", 0.15, 8), ("in_steps",)),
    Shape("blocked loop", together("on_the_loop", 0.1, 8), ("on_the_loop",)),
    Shape("progress", telling, ("telling",)),
    Shape("large results", together("large", 0.15, 6), ("large",)),
    Shape("many at once", together("in_steps", 0.2, MANY), ("in_steps",)),
    Shape("others behind a block", beside, ("on_the_loop",)),
    Shape("short run", short),
)
REAL = ("field-time", "field-time-mcp1", "field-git", "field-git-mcp1", "field-sqlite")
"""Environments of real servers that are asked on stdio."""
TRANSPORTS: tuple[Transport, ...] = ("stdio", "HTTP")


@contextmanager
def constructed(transport: Transport, port: int, folder: Path) -> Iterator[Setting]:
    yield Setting(Ask("quick"), Ask("quick"), (str(SERVER), transport, str(port)))


def cells() -> Iterator[Cell]:
    """Every cell of the table."""
    for shape in SHAPES:
        for sdk in SDKS:
            for transport in TRANSPORTS:
                yield cell(shape.name, sdk, transport)
    for row in ROWS:
        if row.lock in REAL and row.transport == "stdio" and row.package.startswith("mcp-server-"):
            yield Cell(Shape(row.package, real), row)


def cell(shape: str, sdk: str, transport: Transport) -> Cell:
    """The cell of one constructed server."""
    (found,) = [one for one in SHAPES if one.name == shape]
    return Cell(found, Row(sdk, SDKS[sdk], "python", transport, False, "", constructed))
