"""A cancelled cancel scope whose task is over keeps the loop turning while no request is there."""

from __future__ import annotations

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, ask, busy_ratio, facts, server_pid, stdio, warm_up
from tools.field.first_screen import Truth

SOURCE = Source("cancel_spin")


def play(start: Start) -> Facts:
    with stdio(start) as client:
        warm_up(client, "price", "item", 5 if start.is_brief else 40)
        ask(client, "connect")
        ask(client, "disconnect")
        busy = busy_ratio(server_pid(start, client.process), 1.0 if start.is_brief else 10.0)
        price = ask(client, "price", item="tea")
        return facts(idle_busy_ratio=busy, answered_meanwhile=price.answered_s is not None)


TRUTH = Truth(
    cause="anyio delivers a cancellation on every turn of the loop, to a scope whose task is over: 100 % CPU, idle",
    account="open",
    named=(r"_deliver_cancellation", r"(?i:cancel[ _-]?scope)"),
    mends=(
        r"\b(?:one|same|single|own) task\b",
        r"task of (?:its|their) own",
        r"anyio\W+(?:>=\s*)?4\.14",
        r"newer anyio",
    ),
    holder=(quoted("connect"), quoted("disconnect"), SOURCE.inside("connect", "disconnect", "open_upstream")),
    innocents=(quoted("price"), SOURCE.inside("price")),
    related=(r"anyio", SOURCE.inside("bounded", "connect", "disconnect", "open_upstream")),
)
ROWS = (
    Row(
        case="cancel_spin",
        variant="",
        source="HKUDS/nanobot#3638",
        truth=TRUTH,
        play=play,
        shows_fault=lambda facts: facts["idle_busy_ratio"] > 0.6,
        environment="case-anyio",
        bare_environment="case-anyio",
    ),
)
