"""Worker threads wait for a small SQLAlchemy pool whose connections are held during requests to a backend.

cites: vstorm-co/agenticos#12 IBM/mcp-context-forge#2518
state: thread waiting
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: ENGINE TOOL address_of label prepare
numbers: POOL=1..2 GEO_MS=90..115 ROWS=200..400
load: TOOL callers 8..9 calls 3
mend: hold-less or widen
thing: ENGINE or connection pool or QueuePool or pool_size
holder: TOOL or label
"""

import sqlite3

import anyio
import requests
from sqlalchemy import create_engine
from sqlalchemy import text as statement

ENGINE = create_engine(f"sqlite:///{FOLDER / 'streets.db'}", pool_size=POOL, max_overflow=0)


def prepare() -> None:
    with sqlite3.connect(FOLDER / "streets.db") as database:
        database.execute("create table if not exists streets (id integer primary key, name varchar)")
        database.executemany("insert or replace into streets values (?, ?)", [(n, f"street {n}") for n in range(ROWS)])


prepare()


def address_of(street: str) -> bool:
    answer = requests.get(f"{SERVICE}/GEO_MS", params={"street": street}, timeout=30)  #?
    return answer.json()["ok"]


def label(text: str) -> str:
    query = statement("select name from streets where id = :id")
    #: sick
    with ENGINE.connect() as connection:  #!
        street = connection.execute(query, {"id": len(text)}).scalar_one()
        found = address_of(street)  #!
    #: mended
    with ENGINE.connect() as connection:
        street = connection.execute(query, {"id": len(text)}).scalar_one()
    found = address_of(street)
    #: end
    return f"{text}: {street} {'found' if found else 'missing'}"


@server.tool()
async def TOOL(text: str) -> str:
    return await anyio.to_thread.run_sync(label, text)  #!
