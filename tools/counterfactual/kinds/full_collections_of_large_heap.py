"""A large index of live objects is walked by the full collections that an allocation-heavy tool sets off.

cites: sgl-project/sglang#9241 widgetti/solara#1183
state: gc
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: INDEX Entry load_index TREE NEAR tree
numbers: ENTRIES=260000..320000 NODES=36000..44000
load: TREE callers 4..5 calls 5..7
load: NEAR callers 3..4 calls 4..6 pause 0..10
mend: keep-less
thing: INDEX or garbage collection or garbage collector or collections
holder: TREE or tree
"""

import gc


class Entry:
    __slots__ = ("number", "links")

    def __init__(self, number: int) -> None:
        self.number = number
        self.links = [number * 7 % ENTRIES]


def load_index() -> list[Entry]:
    return [Entry(number) for number in range(ENTRIES)]  #!


INDEX = load_index()  #!
#: mended
gc.collect()
gc.freeze()
gc.set_threshold(50_000, 20, 100)
#: end


def tree(text: str) -> list:
    return [[len(text), [number]] for number in range(NODES)]  #!


@server.tool()
async def TREE(text: str) -> str:
    return f"{text}: {len(tree(text))} nodes"  #!


@server.tool()
async def NEAR(text: str) -> str:
    entry = INDEX[len(text) * 977 % len(INDEX)]
    return f"{text}: {entry.number} {entry.links[0]}"
