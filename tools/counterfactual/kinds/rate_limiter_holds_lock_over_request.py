"""A rate limiter keeps its threading.Lock not only while it gives out a turn, but while the request runs.

cites: eric-tramel/zoty#26
state: thread waiting
sdks: mcp2 fastmcp3 fastmcp4
transports: stdio http
names: PoliteLimiter LIMITER download_metadata TOOL
numbers: REQUEST_MS=50..80 GAP_MS=2..5
load: TOOL callers 4..6 calls 4..5
mend: hold-less
thing: LIMITER or PoliteLimiter or _turn_lock
holder: TOOL or download_metadata
"""

import threading
import time

import requests


class PoliteLimiter:
    def __init__(self, gap_s: float) -> None:
        self._turn_lock = threading.Lock()
        self._gap_s = gap_s
        self._next = 0.0

    def _take_turn(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._gap_s

    def perform(self, call, *args):
        #: sick
        with self._turn_lock:  #!
            self._take_turn()
            return call(*args)  #?
        #: mended
        with self._turn_lock:
            self._take_turn()
        return call(*args)
        #: end


LIMITER = PoliteLimiter(GAP_MS / 1000)


def download_metadata(text: str) -> str:
    answer = requests.get(f"{SERVICE}/REQUEST_MS", timeout=10)  #?
    return f"{text}: {answer.json()['ok']}"


@server.tool()
def TOOL(text: str) -> str:
    """Looks the metadata of a paper up."""
    return LIMITER.perform(download_metadata, text)  #!
