"""Each call opens a connection and keeps it, until the process has no descriptors left."""

from __future__ import annotations

from tests.field.cases.case import PLAIN_MCP_2, Facts, Row, Source, quoted
from tests.field.cases.playing import Start, ask, facts, stdio
from tools.field.first_screen import Truth, near

SOURCE = Source("descriptors")
LIMIT = 256
BRIEF_LIMIT = 64


def play(start: Start) -> Facts:
    """Calls until and beyond the limit of descriptors, with a quick call after every third."""
    limit = BRIEF_LIMIT if start.is_brief else LIMIT
    with stdio(start, before=("/bin/sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")) as client:
        calls = []
        for number in range(limit + 44):
            calls.append(ask(client, "total", name="tea"))
            if number % 3 == 0:
                ask(client, "price", item="tea")
        failed = [one for one in calls if one.failure]
        return facts(good=len(calls) - len(failed), bad=len(failed))


TRUTH = Truth(
    cause="each call of `total` opens an SQLite connection that stays open, until the limit of descriptors",
    account="failures",
    named=(
        SOURCE.at("self.connection = sqlite3.connect"),
        near(
            r"(?i:\bdescriptors?\b|\bconnections?\b)", r"(?i:\b(?:open|opened|opens|limit|per call|a call|stay|kept)\b)"
        ),
        r"\bdescriptor-growth\b",
    ),
    mends=(r"\bclos(?:e|es|ed|ing)\b", r"\bshare\b", r"\bone connection\b", r"\blifespan\b"),
    innocents=(quoted("price"), SOURCE.inside("price")),
    related=(SOURCE.inside("Session", "total"),),
)


def is_exhausted(facts: Facts) -> bool:
    return facts["good"] > 0 and facts["bad"] > 20


REPORT = "splunk/token-meter#56"
ROWS = (
    Row("descriptors", "mcp 2", REPORT, TRUTH, play, is_exhausted, PLAIN_MCP_2, PLAIN_MCP_2, is_slow=True),
    Row("descriptors", "mcp 1", REPORT, TRUTH, play, is_exhausted, "mcp1", "mcp1"),
)
