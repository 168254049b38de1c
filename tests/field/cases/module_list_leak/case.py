"""A list of the module that keeps what every call gives it."""

from __future__ import annotations

import time

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.open_sessions.case import resident_kb
from tests.field.cases.playing import Start, answered, call, facts, server_pid, stdio
from tools.field.first_screen import Truth, near

SOURCE = Source("module_list_leak")
CALLS = 400
AT_ONCE = 4


def play(start: Start) -> Facts:
    with stdio(start) as client:
        server = server_pid(start, client.process)
        rounds = CALLS // AT_ONCE
        for number in range(rounds):
            if number == rounds // 2:
                before = resident_kb(server)
            answered(client, [call(client, "note", text=f"n{number}") for _ in range(AT_ONCE)], 20.0)
            if not start.is_brief:
                time.sleep(0.01)
        return facts(kb_a_call=(resident_kb(server) - before) / (CALLS / 2))


LINE = (r"\bHISTORY\b", SOURCE.at("HISTORY.append"))
BOUND = (r"\bbound", r"\bmaxlen\b", r"\bdeque\b", r"\blimit\b", r"\bevict", r"\bexpire")
NOTED = near(quoted("note"), r"(?i:\b(?:keeps?|kept|retains?|retained|holds on|stays?|grows?|grew)\b)")
SHOWN = Truth(
    cause="`note` keeps 36 kB a call in the list HISTORY",
    account="memory",
    named=(*LINE, NOTED),
    mends=(*BOUND, r"--memory leaks"),
)
HUNTED = Truth(
    cause=SHOWN.cause,
    account="memory",
    named=LINE,
    mends=BOUND,
    false_claims=(*SHOWN.false_claims, r"\bnative code\b"),
)


def leaks(facts: Facts) -> bool:
    return facts["kb_a_call"] > 20


REPORT = "astronomer/agents#28"
HUNT = ("--memory", "leaks")
ROWS = (
    Row("module_list_leak", "", REPORT, SHOWN, play, leaks),
    Row("module_list_leak", "--memory leaks", REPORT, HUNTED, play, leaks, options=HUNT, is_slow=True),
)
