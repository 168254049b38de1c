"""A tool downloads inside of an open write transaction, and another tool's threads wait for SQLite's write lock.

cites: awslabs/mcp#3711 buildingjoshbetter/TrueMemory#449
state: thread waiting
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: DATABASE IMPORT NOTE opened download import_feed write_note
numbers: FEED_MS=220..300 ROWS=50..90
load: IMPORT callers 2..3 calls 3
load: NOTE callers 5..6 calls 3..4 pause 0..10
mend: hold-less
thing: write lock or write transaction or DATABASE
holder: IMPORT or import_feed
"""

import sqlite3
from contextlib import closing

import anyio
import requests

DATABASE = FOLDER / "journal.db"


def opened() -> sqlite3.Connection:
    database = sqlite3.connect(DATABASE, timeout=30, isolation_level=None)
    database.execute("pragma synchronous = off")
    return database


with closing(opened()) as first:
    first.execute("pragma journal_mode = wal")
    first.execute("create table if not exists lines (origin varchar, body varchar)")


def download(name: str) -> list[tuple[str, str]]:
    answer = requests.get(f"{SERVICE}/FEED_MS", params={"feed": name}, timeout=30)  #?
    return [(name, f"line {number}: {answer.json()['ok']}") for number in range(ROWS)]


def import_feed(name: str) -> int:
    with closing(opened()) as database:
        #: sick
        database.execute("begin immediate")  #!
        lines = download(name)  #!
        #: mended
        lines = download(name)
        database.execute("begin immediate")
        #: end
        database.executemany("insert into lines values (?, ?)", lines)
        database.execute("commit")
    return len(lines)


def write_note(text: str) -> int:
    with closing(opened()) as database:
        return database.execute("insert into lines values ('note', ?)", (text,)).rowcount  #!


@server.tool()
async def IMPORT(text: str) -> str:
    return f"{text}: {await anyio.to_thread.run_sync(import_feed, text)} lines"  #!


@server.tool()
async def NOTE(text: str) -> str:
    return f"{text}: {await anyio.to_thread.run_sync(write_note, text)} noted"  #!
