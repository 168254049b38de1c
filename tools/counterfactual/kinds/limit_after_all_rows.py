"""A query's rows are all fetched and turned into dictionaries on the event loop, and then all but a page are dropped.

cites: Syngnat/GoNavi#1142
state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: DATABASE PAGE COUNT fill fetch_page
numbers: READINGS=26000..32000 SIZE=20..40
load: PAGE callers 5..6 calls 3..4
load: COUNT callers 2..3 calls 4..6 pause 0..10
mend: compute-less or send-less
thing: fetch_page or fetchall
holder: PAGE or fetch_page
"""

import sqlite3

DATABASE = sqlite3.connect(FOLDER / "readings.db")
DATABASE.row_factory = sqlite3.Row


def fill() -> None:
    DATABASE.execute("create table if not exists readings (id integer primary key, place varchar, value integer)")
    some = ((n, f"place {n % 90}", n * 31 % 1009) for n in range(READINGS))
    DATABASE.executemany("insert or replace into readings values (?, ?, ?)", some)
    DATABASE.commit()


fill()


def fetch_page(first: int) -> list[dict]:
    #: sick
    found = DATABASE.execute("select * from readings where id >= ? order by id", (first,)).fetchall()  #!
    return [dict(row) for row in found][:SIZE]  #!
    #: mended
    found = DATABASE.execute("select * from readings where id >= ? order by id limit SIZE", (first,)).fetchall()
    return [dict(row) for row in found]
    #: end


@server.tool()
async def PAGE(text: str) -> str:
    page = fetch_page(len(text))  #!
    return f"{text}: {len(page)} rows from {page[0]['place']}, sum {sum(row['value'] for row in page)}"


@server.tool()
async def COUNT(text: str) -> str:
    return f"{text}: {DATABASE.execute('select max(id) from readings').fetchone()[0]}"
