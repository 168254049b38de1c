"""A connection of a small SQLAlchemy pool (asyncio) stays checked out while an HTTP backend answers.

cites: IBM/mcp-context-forge#2518 open-webui/open-webui#20545
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CLIENT ENGINE TOOL rate prepare
numbers: POOL=1..2 RATE_MS=90..115 ITEMS=200..400
load: TOOL callers 8..9 calls 3
mend: hold-less or widen
thing: ENGINE or connection pool or QueuePool or pool_size
holder: TOOL
"""

import sqlite3

import httpx
from sqlalchemy import text as statement
from sqlalchemy.ext.asyncio import create_async_engine

CLIENT = httpx.AsyncClient(base_url=SERVICE, timeout=30)
ENGINE = create_async_engine(f"sqlite+aiosqlite:///{FOLDER / 'articles.db'}", pool_size=POOL, max_overflow=0)


def prepare() -> None:
    with sqlite3.connect(FOLDER / "articles.db") as database:
        database.execute("create table if not exists articles (id integer primary key, cents integer)")
        database.executemany("insert or replace into articles values (?, ?)", [(n, n * 37 % 901) for n in range(ITEMS)])


prepare()


async def rate(currency: str) -> bool:
    answer = await CLIENT.get("/RATE_MS", params={"currency": currency})  #?
    return answer.json()["ok"]


@server.tool()
async def TOOL(text: str) -> str:
    query = statement("select sum(cents) from articles where id % 10 = :rest")
    #: sick
    async with ENGINE.connect() as connection:  #!
        cents = (await connection.execute(query, {"rest": len(text) % 10})).scalar_one()
        known = await rate("EUR")  #!
    #: mended
    async with ENGINE.connect() as connection:
        cents = (await connection.execute(query, {"rest": len(text) % 10})).scalar_one()
    known = await rate("EUR")
    #: end
    return f"{text}: {cents} {'EUR' if known else '?'}"
