"""A background thread holds a lock of threads while it asks a service; a tool takes the same lock on the event loop.

cites: r-spade/ormah#18
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: REMEMBER LOOK GUARD consolidator
numbers: HOLD_MS=220..320 GAP_MS=30..50
load: REMEMBER callers 3..4 calls 5..7 pause 20..60
load: LOOK callers 3..4 calls 9..12 pause 20..60
mend: hold-less or to-thread
thing: GUARD
holder: consolidator or consolidate or ask_embedder
"""

import sqlite3
import threading

import requests

GUARD = threading.RLock()
STORE = sqlite3.connect(":memory:", check_same_thread=False)
STORE.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, body TEXT, weight REAL)")


def ask_embedder(bodies: list[str]) -> float:
    answer = requests.get(f"{SERVICE}/HOLD_MS", params={"number": len(bodies)}, timeout=10)  #?
    return 1.0 if answer.json()["ok"] else 0.0


def consolidate() -> None:
    pause = threading.Event()
    while not pause.wait(GAP_MS / 1000):
        #: sick
        with GUARD:  #!
            rows = STORE.execute("SELECT id, body FROM entry WHERE weight IS NULL LIMIT 100").fetchall()
            weight = ask_embedder([body for _, body in rows])  #?
            STORE.executemany("UPDATE entry SET weight = ? WHERE id = ?", [(weight, id) for id, _ in rows])
        #: mended
        with GUARD:
            rows = STORE.execute("SELECT id, body FROM entry WHERE weight IS NULL LIMIT 100").fetchall()
        weight = ask_embedder([body for _, body in rows])
        with GUARD:
            STORE.executemany("UPDATE entry SET weight = ? WHERE id = ?", [(weight, id) for id, _ in rows])
        #: end


threading.Thread(target=consolidate, name="consolidator", daemon=True).start()


def keep(text: str) -> None:
    with GUARD:  #!
        STORE.execute("INSERT INTO entry (body) VALUES (?)", (text,))


@server.tool()
async def REMEMBER(text: str) -> str:
    keep(text)  #!
    return f"kept {text}"


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
