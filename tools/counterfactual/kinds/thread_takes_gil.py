"""Background threads compare all entries in pure Python and so keep the interpreter's lock from the event loop.

cites: mozarkai/optics-framework#455, modelcontextprotocol/python-sdk#3089, jgravelle/jdocmunch-mcp#34
state: no gil
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LOOK comparer
numbers: ENTRIES=600..700 SHARES=2..3 GAP_MS=10..20
load: LOOK callers 4..5 calls 6..8 pause 5..15
mend: compute-less or to-process
thing: compare_share or GIL
holder: comparer or compare_share or keep_comparing
"""

import operator
import threading

import numpy

VECTORS = numpy.random.default_rng(ENTRIES).random((ENTRIES, 64))
NEAREST: dict[int, int] = {}


def compare_share(numbers: range) -> None:
    #: sick
    rows = VECTORS.tolist()
    scores = [[sum(map(operator.mul, rows[number], other)) for other in rows] for number in numbers]  #!
    #: mended
    scores = VECTORS[list(numbers)] @ VECTORS.T
    #: end
    NEAREST.update((number, int(numpy.argmax(row))) for number, row in zip(numbers, scores, strict=True))


def keep_comparing(share: int) -> None:
    pause = threading.Event()
    while not pause.wait(GAP_MS / 1000):
        compare_share(range(share, ENTRIES, SHARES))  #!


for number in range(SHARES):
    threading.Thread(target=keep_comparing, args=(number,), name=f"comparer {number}", daemon=True).start()


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
