"""``stateless``: streamable HTTP with sessions, without them, and with one for every call.

The client posts plain JSON and parses nothing unasked, so that what differs is the server's. It counts its own CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import anyio

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.counted_calls import COUNTING, Ask, Caller, in_turns, put_calls, through
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.tables import Table

TABLE = "now sessions or none"
KEPT, STATELESS = "one session, kept", "a server without sessions"
MODERN, EACH = "2026-07-28, which has none", "a session for every call"
Answers = Literal["json", "sse"]
ANSWERS: Mapping[Answers, str] = {"json": "JSON answers", "sse": "SSE answers"}
COUNTED_CALLS = 8


async def run(bench: Bench) -> Outcome:
    """With JSON answers, in a full run with SSE as well."""
    formats: list[Answers] = bench.size(["json"], ["json", "sse"])
    for answers in formats:
        bench.step(ANSWERS[answers])
        starts = [
            bench.server(COUNTING, transport=answers, connect=False),
            bench.server(COUNTING, "--stateless", transport=answers, connect=False),
        ]
        async with side_by_side(starts) as (stateful, free):
            servers = {label: free if label == STATELESS else stateful for label in (KEPT, STATELESS, MODERN, EACH)}
            cpu_us, ids = await _one_format(bench, answers, servers)
        if answers == "json":
            _cost_claims(bench, cpu_us, servers)
            _count_claim(bench, servers, ids)
    return bench.outcome()


async def _one_format(
    bench: Bench, answers: Answers, servers: Mapping[str, ProfiledServer]
) -> tuple[dict[str, Stats], tuple[str | None, ...]]:
    """The ways by turns, then a few calls of each to be counted; and the sessions that the server gave."""
    url = servers[KEPT].url or ""
    with RawSession(url) as kept, RawSession(servers[STATELESS].url or "") as free, RawSession(url, modern=True) as new:
        await anyio.to_thread.run_sync(kept.open)
        callers = {
            KEPT: Caller(through(kept)),
            STATELESS: Caller(through(free)),
            MODERN: Caller(through(new)),
            EACH: Caller(_session_each(url), through(new)),
        }
        cpu_us = await _timed(bench, answers, callers, servers)
        for label, caller in callers.items():
            with servers[label].phase(f"{label}, counted"):
                await caller.some(COUNTED_CALLS)
        return cpu_us, (kept.session_id, free.session_id, new.session_id)


def _session_each(url: str) -> Ask:
    def ask(tool: str, arguments: dict[str, Any]) -> str:
        with RawSession(url) as session:
            session.open()
            said = session.call(tool, **arguments).text()
            session.end()
            return said

    return ask


async def _timed(
    bench: Bench, answers: Answers, callers: Mapping[str, Caller], servers: Mapping[str, ProfiledServer]
) -> dict[str, Stats]:
    calls, rounds = bench.size(25, 100), bench.size(4, 12)
    found = await in_turns(bench, callers, calls, rounds)
    for label, caller in callers.items():
        with servers[label].phase(label):
            await caller.some(calls)
    table = Table(bench, f"{TABLE}, {ANSWERS[answers]}")
    return put_calls(table, callers, found, rounds, {label: servers[label].later(label, "add") for label in callers})


def _cost_claims(bench: Bench, cpu_us: Mapping[str, Stats], servers: Mapping[str, ProfiledServer]) -> None:
    ratio = ratio_of(cpu_us[STATELESS], cpu_us[KEPT])
    judged(
        bench,
        "now-8",
        "a call to a server without sessions costs it more than a call in a kept session",
        Asked("more"),
        ratio,
        said=f"{cpu_us[STATELESS].median:.0f} and {cpu_us[KEPT].median:.0f} µs of the server's CPU: "
        f"{ratio.value:.2f}×, and {cpu_us[MODERN].median:.0f} µs in protocol 2026-07-28",
        how="the server's CPU time of a call, without a session over in one",
        why=f"Without: {servers[STATELESS].why(STATELESS)} In a session: {servers[KEPT].why(KEPT)}",
    )
    ratio = ratio_of(cpu_us[EACH], cpu_us[KEPT])
    requests = len(servers[EACH].seen(f"{EACH}, counted").requests) - 2  # what the server is asked to count by
    judged(
        bench,
        "now-9",
        "a session for every call costs the server several times a call in a kept one",
        Asked("at least", (2.0,), "blurs"),
        ratio,
        said=f"{cpu_us[EACH].median:.0f} and {cpu_us[KEPT].median:.0f} µs of the server's CPU: {ratio.value:.1f}×",
        how="the server's CPU time of a call, times that in a kept session",
        why=f"Each took {requests / COUNTED_CALLS:g} requests, a notification and a DELETE instead of one request.",
    )


def _count_claim(bench: Bench, servers: Mapping[str, ProfiledServer], ids: tuple[str | None, ...]) -> None:
    """What the client sent is the truth: so many calls, and an ``initialize`` for each session it opened."""
    found = {}
    for label, server in servers.items():
        names = Counter(each.name or each.method for each in server.seen(f"{label}, counted").requests)
        found[label] = (names["add"], names["initialize"])
    sent = {label: (COUNTED_CALLS, COUNTED_CALLS if label == EACH else 0) for label in servers}
    given = [session_id is not None for session_id in ids]
    wrong = [f"{label}: {found[label]} instead of {sent[label]}" for label in sent if found[label] != sent[label]]
    told = "; ".join(wrong) or "all as sent"
    exactly(
        bench,
        "now-10",
        "the probe counts each call and each handshake once, with sessions and without",
        said=f"{told}; the server gave {sum(given)} of 3 clients a session",
        how=f"{COUNTED_CALLS} calls of each kind, as many handshakes where each has its session, else none; "
        "a session to the first client only",
        fine=not wrong and given == [True, False, False],
        why=f"It saw {found[EACH][1]} handshakes for {found[EACH][0]} calls with a session each, "
        f"{found[STATELESS][1]} for {found[STATELESS][0]} without.",
    )
