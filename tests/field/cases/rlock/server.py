# mypy: ignore-errors
"""A module-wide RLock that a background thread holds for seconds; an async tool takes it on the loop's thread."""

import sqlite3
import threading
import time

from fastmcp import FastMCP

server = FastMCP("notes")
LOCK = threading.RLock()
connection = sqlite3.connect(":memory:", check_same_thread=False)
connection.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT)")


def consolidate() -> None:
    while True:
        time.sleep(0.6)
        with LOCK:
            embed_all()


def embed_all() -> None:
    time.sleep(1.2)  # a request to a model


@server.tool
async def remember(text: str) -> int:
    with LOCK:
        return connection.execute("INSERT INTO notes(text) VALUES (?)", (text,)).lastrowid


@server.tool
async def ping() -> str:
    return "pong"


if __name__ == "__main__":
    threading.Thread(target=consolidate, name="consolidator", daemon=True).start()
    server.run(show_banner=False, log_level="warning")
