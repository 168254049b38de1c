"""A model is loaded lazily and without a lock, so each of the first calls loads it once more, in its worker thread.

cites: kubeflow/docs-agent#169, nbramia/LifeOS#314
state: first
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LOADED
numbers: WORDS=110000..150000
load: TOOL callers 6..8 calls 2..3
mend: load-at-start
thing: get_model or read_model or LOADED
"""

import asyncio
import hashlib
import threading

LOADED = None
#: mended
LOADING = threading.Lock()
#: end


def read_model() -> dict[str, int]:
    tokens = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(WORDS)]  #!
    return {token: rank for rank, token in enumerate(sorted(tokens))}  #!


def get_model() -> dict[str, int]:
    global LOADED
    #: sick
    if LOADED is None:  #!
        LOADED = read_model()  #!
    #: mended
    with LOADING:
        if LOADED is None:
            LOADED = read_model()
    #: end
    return LOADED


def embed(text: str) -> int:
    model = get_model()  #!
    ranks = [model[hashlib.sha256(b"%d" % ord(letter)).hexdigest()] for letter in text if ord(letter) < 1000]
    return sum(ranks) % 997


@server.tool()
async def TOOL(text: str) -> str:
    score = await asyncio.to_thread(embed, text)
    return f"{text}: {score}"
