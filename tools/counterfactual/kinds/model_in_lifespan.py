"""The lifespan loads a model before it yields, so the handshake is answered only after that.

cites: shreyaskarnik/voice-mcp#4, vectorize-io/hindsight#4374
state: start
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio
names: FIND SPEAK
numbers: FETCH_MS=1500..1900 WORDS=220000..280000
load: FIND callers 2..3 calls 3..5
mend: load-later or in-background
thing: load_voices or warmed
lifespan: warmed
"""

import asyncio
import hashlib
from contextlib import asynccontextmanager

import requests

VOICES: dict[str, str] = {}


def load_voices() -> None:
    answer = requests.get(f"{SERVICE}/FETCH_MS/bytes/200000", timeout=30)  #!
    salt = len(answer.content)
    VOICES.update((str(n), hashlib.sha256(b"%d %d" % (salt, n)).hexdigest()) for n in range(WORDS))  #!


@asynccontextmanager
async def warmed():
    #: sick
    if not VOICES:
        load_voices()  #!
    yield
    #: mended
    warming = asyncio.create_task(asyncio.to_thread(load_voices))
    yield
    warming.cancel()
    #: end


@server.tool()
async def FIND(text: str) -> str:
    return ", ".join(word for word in sorted(text.split()) if word.isalpha())


@server.tool()
async def SPEAK(text: str) -> str:
    while not VOICES:
        await asyncio.sleep(0.1)
    return "".join(VOICES[str(ord(letter))][0] for letter in text)
