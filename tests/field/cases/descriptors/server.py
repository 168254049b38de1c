# mypy: ignore-errors
"""Each call opens a connection to the database and keeps it. (stdio)"""

import pathlib
import sqlite3
import tempfile

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

server = Server("ledger")
PATH = pathlib.Path(tempfile.mkdtemp()) / "ledger.sqlite"
sqlite3.connect(PATH).executescript(
    "CREATE TABLE entry (name TEXT, amount INTEGER); INSERT INTO entry VALUES ('tea', 3)"
)
sessions: dict[int, sqlite3.Connection] = {}


class Session:
    def __init__(self) -> None:
        self.connection = sqlite3.connect(PATH, check_same_thread=False)
        sessions[id(self)] = self.connection

    def total(self, name: str) -> int:
        return self.connection.execute("SELECT sum(amount) FROM entry WHERE name = ?", (name,)).fetchone()[0]


@server.tool()
async def total(name: str) -> int:
    return Session().total(name)


@server.tool()
async def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run("stdio")
