"""Threads that wait for the loop, and a loop or a limiter that waits for the threads."""

from __future__ import annotations

import time

from tests.field.cases.case import PLAIN_MCP_2, Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, ask, call, facts, stdio, warm_up
from tools.field.client import Exchange, Stdio
from tools.field.first_screen import ELSEWHERE, Truth

SOURCE = Source("loop_thread_deadlock")
AT_ONCE = 6


def play_limiter(start: Start) -> Facts:
    with stdio(start, patience_s=3.0) as client:
        warm_up(client, "price", "item", 5 if start.is_brief else 40)
        alone = ask(client, "gather", name="tea")
        calls = [call(client, "gather", name="tea") for _ in range(AT_ONCE)]
        return facts(alone=alone.answered_s is not None, **hang(start, client, calls))


def play_result(start: Start) -> Facts:
    with stdio(start, patience_s=3.0) as client:
        warm_up(client, "price", "item", 5 if start.is_brief else 40)
        return hang(start, client, [call(client, "rebuild", name="tea")])


def hang(start: Start, client: Stdio, calls: list[Exchange]) -> Facts:
    count = answered(client, calls, 1.0 if start.is_brief else 3.0)
    price = call(client, "price", item="tea")
    meanwhile = answered(client, [price], 1.0 if start.is_brief else 2.0)
    if not start.is_brief:
        time.sleep(1.0)
    return facts(answered=count, price_answered=meanwhile)


LIMITER = Truth(
    cause="four jobs of `gather` hold all of LIMIT, and each waits for a job that needs a token of it: a deadlock",
    account="time",
    named=(
        r"\bLIMIT\b",
        r"\bCapacityLimiter\(4\)",
        SOURCE.at("anyio.from_thread.run(in_thread", "run_sync(part, name", "run_sync(gather_parts"),
    ),
    mends=(
        r"\bsame limiter\b",
        r"\b(?:two|another|second|separate|different|private|own) limiter",
        r"\blimiter of (?:its|their) own\b",
        r"\b(?:call|run)\b.{0,40}\bin the (?:same )?thread\b",
    ),
    holder=(quoted("gather"), SOURCE.at("run_sync(gather_parts"), SOURCE.inside("gather_parts")),
    innocents=(quoted("price"), SOURCE.inside("price")),
    related=(SOURCE.at("LIMIT = "), SOURCE.inside("gather", "gather_parts", "in_thread", "part")),
)
RESULT = Truth(
    cause="`rebuild` joins a thread on the event loop while that thread waits for the loop: a deadlock",
    account="time",
    named=(SOURCE.at("helper.join()"), SOURCE.at("run_coroutine_threadsafe(ready()")),
    mends=(r"\bawait\b", r"\bto_thread\b"),
    holder=(
        r"(?i:\bdeadlock\b)",
        r"\bthread\W{1,3}rebuild\b",
        r"run_coroutine_threadsafe",
        SOURCE.at("run_coroutine_threadsafe(ready()"),
    ),
    innocents=(quoted("price"), SOURCE.inside("price", "ready")),
    related=(r"threading\.py", SOURCE.inside("rebuild")),
    false_claims=ELSEWHERE,
)
ROWS = (
    Row(
        case="loop_thread_deadlock",
        variant="limiter",
        source="modelcontextprotocol/python-sdk#3510",
        truth=LIMITER,
        environment=PLAIN_MCP_2,
        bare_environment=PLAIN_MCP_2,
        play=play_limiter,
        shows_fault=lambda facts: bool(facts["alone"] and facts["price_answered"] and not facts["answered"]),
    ),
    Row(
        case="loop_thread_deadlock",
        variant="result",
        source="NorthlandPositronics/Cogtrix#2152",
        truth=RESULT,
        environment=PLAIN_MCP_2,
        bare_environment=PLAIN_MCP_2,
        play=play_result,
        shows_fault=lambda facts: not facts["answered"] and not facts["price_answered"],
    ),
)
