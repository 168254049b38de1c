"""A lock that a background thread holds for seconds, taken on the event loop's thread."""

from __future__ import annotations

import time

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, call, facts, stdio, took_s
from tools.field.first_screen import ELSEWHERE, Truth

SOURCE = Source("rlock")


def play(start: Start) -> Facts:
    """Ten seconds of a `remember` every 300 ms and a `ping` every 100 ms; nobody waits for an answer."""
    with stdio(start) as client:
        pings, others = [], []
        for tick in range(24 if start.is_brief else 100):
            pings.append(call(client, "ping"))
            if tick % 3 == 0:
                others.append(call(client, "remember", text=str(tick)))
            time.sleep(0.1)
        answered(client, [*pings, *others], 20.0)
        return facts(slowest_ping_s=max(took_s(pings), default=0.0))


TRUTH = Truth(
    cause="`remember` takes LOCK on the event loop's thread, and the thread `consolidator` holds it for 1.2 s",
    account="time",
    named=(r"\bLOCK\b", r"\bRLock\b", SOURCE.inside("remember")),
    mends=(
        r"\bhold\b.{0,60}\block\b|\block\b.{0,60}\b(?:shorter|only|outside|release)",
        r"\bto_thread\b",
        r"\bin a (?:worker )?thread\b",
    ),
    holder=(r"\bconsolidat(?:e|or)\b", SOURCE.inside("consolidate", "embed_all")),
    innocents=(quoted("ping"), SOURCE.inside("ping")),
    related=(SOURCE.inside("consolidate", "embed_all"), SOURCE.at("LOCK = ")),
    false_claims=ELSEWHERE,
)
ROWS = (
    Row(
        case="rlock",
        variant="",
        source="r-spade/ormah#18",
        truth=TRUTH,
        play=play,
        shows_fault=lambda facts: facts["slowest_ping_s"] > 0.5,
    ),
)
