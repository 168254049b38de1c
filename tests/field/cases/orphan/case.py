"""A stdio server that does not end when its client has gone: a thread, a job, or a loop after run() keeps it."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from functools import partial

from tests.field.cases.case import PLAIN_MCP_2, Facts, Row, Source, quoted
from tests.field.cases.playing import Start, ask, busy_ratio, close_stdin, facts, is_alive, server_pid, stdio, warm_up
from tools.field.first_screen import Truth, near

SOURCE = Source("orphan")
STAYS_S = 5.0
"""MCP clients send SIGTERM after two seconds."""


def play(kind: str, start: Start) -> Facts:
    """Forty calls, then stdin closes; SIGTERM follows when the server has had its time."""
    with stdio(start, kind, patience_s=0.1) as client:
        warm_up(client, "note", "text", 5 if start.is_brief else 40)
        if kind == "job":
            ask(client, "begin_watch", path="/")
        server = server_pid(start, client.process)
        close_stdin(client)
        with suppress(subprocess.TimeoutExpired):
            client.process.wait(1.0 if start.is_brief else STAYS_S)
        stays = is_alive(server)
        return facts(stays=stays, busy_ratio=busy_ratio(server, 0.5) if stays else 0.0)


COMMON = (quoted("note"), SOURCE.inside("note"))
TRUTHS = {
    "thread": Truth(
        cause="the thread `indexer`, which is no daemon, keeps the process after its client",
        account="open",
        named=(r"\bindexer\b", SOURCE.inside("indexer"), SOURCE.at('name="indexer"')),
        mends=(r"\bdaemon", r"\bsentinel\b", r"\b(?:stop|end)[ -](?:event|signal)", r"\btell (?:it|the thread) to"),
        innocents=COMMON,
        related=(r"threading\.py",),
    ),
    "job": Truth(
        cause="an executor's job `watch` keeps the process after its client: Python joins it",
        account="open",
        named=(r"\bwatch\b", SOURCE.inside("watch"), SOURCE.at("run_in_executor")),
        mends=(r"\btime-?out", r"\b(?:stop|end)[ -](?:event|signal)", r"\bcancel", r"\bdaemon"),
        innocents=COMMON,
        related=(r"threading\.py", r"thread\.py", SOURCE.inside("begin_watch")),
    ),
    "spin": Truth(
        cause="`while True: pass` after run() keeps the process after its client, at 100 % CPU",
        account="open",
        named=(SOURCE.at("while True:  # keep the process alive", "            pass"), near("after", r"run\(\)")),
        mends=(r"after\W+run\(\)", r"\b(?:remove|no|without|leave out)\b.{0,30}\bloop\b", r"\breturn\b"),
        innocents=COMMON,
    ),
}
SOURCES = {
    "thread": "Q00/ouroboros#2325",
    "job": "rakaarwaky/qwen-web-arwaky#222",
    "spin": "assafelovic/gptr-mcp#33",
}
ROWS = tuple(
    Row(
        case="orphan",
        variant=kind,
        source=SOURCES[kind],
        truth=truth,
        play=partial(play, kind),
        environment=PLAIN_MCP_2,
        bare_environment=PLAIN_MCP_2,
        is_slow=kind == "job",
        shows_fault=lambda facts, least=0.6 if kind == "spin" else 0.0: bool(  # type: ignore[misc]
            facts["stays"] and facts["busy_ratio"] >= least
        ),
    )
    for kind, truth in TRUTHS.items()
)
