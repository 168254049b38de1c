"""A large JSON file is read and parsed anew by each call, on the event loop.

cites: JameZUK/ProcmonMCP#24
state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CATALOGUE ARTICLE PING write_catalogue articles
numbers: ARTICLES=24000..30000
load: ARTICLE callers 4..5 calls 3..4
load: PING callers 3..4 calls 4..6 pause 0..10
mend: cache or compute-less or load-at-start
thing: CATALOGUE or json.loads
holder: ARTICLE or articles
"""

import functools
import json

CATALOGUE = FOLDER / "catalogue.json"


def write_catalogue() -> None:
    entries = [{"number": n, "name": f"article {n}", "tags": ["new", "red"], "stock": n % 17} for n in range(ARTICLES)]
    CATALOGUE.write_text(json.dumps(entries), "utf-8")


write_catalogue()


#: sick
def articles() -> list[dict]:
    return json.loads(CATALOGUE.read_text("utf-8"))  #!


#: mended
@functools.cache
def articles() -> list[dict]:
    return json.loads(CATALOGUE.read_text("utf-8"))


#: end


@server.tool()
async def ARTICLE(text: str) -> str:
    entries = articles()  #!
    entry = entries[len(text) * 131 % len(entries)]
    return f"{text}: {entry['name']}, {entry['stock']} left"


@server.tool()
async def PING(text: str) -> str:
    return f"{text}: here"
