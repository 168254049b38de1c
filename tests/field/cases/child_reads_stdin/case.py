"""A program that a tool starts inherits the server's stdin and swallows the client's requests."""

from __future__ import annotations

import time
from functools import partial

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, call, facts, stdio, warm_up
from tools.field.first_screen import ELSEWHERE, HELD, Truth, near

SOURCE = Source("child_reads_stdin")
QUICK = 20
LINES = {
    "count": "run_sync(lambda: subprocess.run(SUM",
    "count_async": "create_subprocess_exec(*SUM",
    "count_anyio": "anyio.run_process(SUM",
    "count_sync": "return subprocess.run(SUM",
}


def play(tool: str, start: Start) -> Facts:
    """One slow call, then quick ones that must be answered meanwhile."""
    with stdio(start) as client:
        warm_up(client, "price", "item", 5 if start.is_brief else 40)
        slow = call(client, tool, path="x")
        time.sleep(0.5 if start.is_brief else 1.0)
        quick = []
        for _ in range(QUICK):
            quick.append(call(client, "price", item="tea"))
            time.sleep(0.05)
        count = answered(client, quick, 0.8 if start.is_brief else 2.0)
        if not start.is_brief:
            time.sleep(1.0)
        return facts(asked=QUICK, answered=count, slow_answered=slow.answered_s is not None)


def truth(tool: str) -> Truth:
    child = r"(?i:\bchild|\bsubprocess|\bprogram|\bprocess(?:es)?\b|`python)"
    return Truth(
        cause=f"the program that `{tool}` starts inherits the server's stdin and swallows requests",
        account="time",
        named=(SOURCE.at(LINES[tool]), near(r"(?i:\bstdin\b)", child), r"\bstdin-shared\b"),
        mends=(r"\bDEVNULL\b", r"\bstdin="),
        innocents=(quoted("price"), SOURCE.inside("price")),
        related=(SOURCE.inside(tool),),
        false_claims=ELSEWHERE if tool == "count_sync" else (*ELSEWHERE, HELD),
    )


ROWS = tuple(
    Row(
        case="child_reads_stdin",
        variant=tool,
        source="gastownhall/beads#400",
        truth=truth(tool),
        play=partial(play, tool),
        shows_fault=lambda facts: facts["answered"] < facts["asked"] and not facts["slow_answered"],
        environment="mcp1",
        bare_environment="mcp1",
        is_slow=tool in ("count_async", "count_anyio"),
    )
    for tool in LINES
)
