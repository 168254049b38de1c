"""A token verifier that asks an identity provider for every request, before any handler of MCP."""

from __future__ import annotations

import threading
from functools import partial

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, call, facts, http_port, took_s
from tools.field.backends import slow_http
from tools.field.client import Exchange, Http
from tools.field.first_screen import ELSEWHERE, HELD, Truth

SOURCE = Source("token_verification")
CLIENTS = 4
CALLS = 10
PROVIDER_S = 0.3


def play(mode: str, start: Start) -> Facts:
    """Four clients at once, each with ten calls one after the other."""
    clients, calls = (2, 1) if start.is_brief else (CLIENTS, CALLS)
    exchanges: list[Exchange] = []
    with (
        slow_http(lambda path, body: ("application/json", b'{"active": true, "keys": []}'), PROVIDER_S) as provider,
        http_port(start, mode, provider) as (process, port),
    ):

        def visit() -> None:
            client = Http(process, port, "/mcp", {"authorization": "Bearer a-token"})
            client.start()
            for number in range(calls):
                exchange = call(client, "recall", topic=str(number))
                answered(client, [exchange], 60.0)
                exchanges.append(exchange)

        threads = [threading.Thread(target=visit) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return facts(asked=clients * calls, answered=len(took_s(exchanges)), quickest_s=min(took_s(exchanges), default=0.0))


VERIFIER = (r"\bverify_token\b", r"\bRemoteVerifier\b", SOURCE.inside("verify_token"))
INNOCENTS = (quoted("recall"), SOURCE.inside("recall"))
PROVIDER = (r"http://127\.0\.0\.1:\d+",)
QUEUES = r"\b(?:crowding|head-of-line|dispatch-backlog)\b"
AWAITED = Truth(
    cause="each request awaits the identity provider twice, 300 ms each, in the token verifier",
    account="time",
    named=(*VERIFIER, *PROVIDER),
    mends=(r"\bcach", r"\bshared? (?:\w+ )?client\b", r"\bone (?:\w+ )*client\b", r"\bgather\b", r"\btask group\b"),
    innocents=INNOCENTS,
    false_claims=(*ELSEWHERE, HELD, QUEUES),
)
BLOCKED = Truth(
    cause="the token verifier blocks the event loop for two requests to the identity provider, 300 ms each",
    account="time",
    named=VERIFIER,
    mends=(r"\bcach", r"\basync (?:\w+ )?client\b", r"\bhttpx\b", r"\bto_thread\b", r"\bin a (?:worker )?thread\b"),
    innocents=INNOCENTS,
    false_claims=ELSEWHERE,
)
ROWS = tuple(
    Row(
        case="token_verification",
        variant=mode,
        source="PrefectHQ/fastmcp#3543",
        truth=BLOCKED if mode == "sync" else AWAITED,
        play=partial(play, mode),
        shows_fault=lambda facts: facts["answered"] == facts["asked"] and facts["quickest_s"] >= 2 * PROVIDER_S,
        is_slow=mode != "async",
    )
    for mode in ("async", "shared", "sync")
)
