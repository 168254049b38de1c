"""A model that few calls need is fetched and built in the module's body, so no client is answered before that is done.

cites: jgravelle/jdocmunch-mcp#110, doobidoo/mcp-memory-service#561
state: start
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio
names: FIND RERANK
numbers: FETCH_MS=900..1300 WORDS=250000..350000
load: FIND callers 2..3 calls 3..5
mend: load-later
thing: load_weights or WEIGHTS
"""

import asyncio
import functools
import hashlib

import requests


def load_weights() -> dict[str, int]:
    answer = requests.get(f"{SERVICE}/FETCH_MS/bytes/400000", timeout=30)  #!
    salt = len(answer.content)
    words = [hashlib.sha256(b"%d %d" % (salt, number)).hexdigest() for number in range(WORDS)]  #!
    return {word: rank for rank, word in enumerate(words)}  #!


#: sick
WEIGHTS = load_weights()  #!


#: mended
@functools.cache
def weights() -> dict[str, int]:
    return load_weights()


#: end


@server.tool()
async def FIND(text: str) -> str:
    return ", ".join(word for word in sorted(text.split()) if word.isalpha())


@server.tool()
async def RERANK(text: str) -> str:
    #: sick
    found = WEIGHTS
    #: mended
    found = await asyncio.to_thread(weights)
    #: end
    return ", ".join(sorted(text.split(), key=lambda word: found.get(word, 0)))
