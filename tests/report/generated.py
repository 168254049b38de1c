"""Hypothesis strategies: summaries of every shape, sensible or not."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from mcp_probe.model import (
    BUDGET_PARTS,
    ArrivalDelay,
    BlockedBy,
    BudgetMeans,
    Cause,
    ExecutorSummary,
    Finding,
    LoopSummary,
    MemoryStats,
    OperationMemory,
    OperationSummary,
    Outstanding,
    Percentiles,
    ProbeSelf,
    Quality,
    RequestCounts,
    RequestKind,
    ServerInfo,
    Severity,
    Signals,
    SlowStep,
    StepStats,
    Summary,
    Tag,
    Verdict,
    WaitPercentiles,
    Window,
)

# Names come from strangers: wide characters, combining ones, escape sequences, lone surrogates, nothing at all.
NAMES = st.one_of(
    st.sampled_from(
        ["search", "resize", "get_current_time", "(loop)", "(many small steps)", "", "検索_ツール", "a" * 90]
    ),
    st.text(max_size=40),
    st.text(alphabet="\x1b[31m\r\n\t\u202e\u0301\u200d\ud800é…", max_size=12),
)
SENTENCES = st.lists(st.one_of(NAMES, st.sampled_from(["`def`", "3.1 s", "waited", "`"])), max_size=25).map(" ".join)
COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(-(2**63), 2**63))
NUMBERS = st.one_of(st.just(0.0), st.floats(0, 5), st.floats(0, 1e6), st.floats())
MAYBE = st.one_of(st.none(), NUMBERS)
TAGS = st.sampled_from(get_args(Tag))
QUALITIES = st.builds(Quality, TAGS, MAYBE, MAYBE)
FILES = st.one_of(st.none(), st.just("/srv/app/.venv/lib/python3.13/site-packages/pkg/mod.py"), NAMES)

OPERATIONS = st.builds(
    OperationSummary,
    name=NAMES,
    method=st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", ""]),
    kind=st.sampled_from(get_args(RequestKind)),
    count=COUNTS,
    errors=COUNTS,
    cancelled=COUNTS,
    unfinished=COUNTS,
    total_ms=st.builds(Percentiles, MAYBE, MAYBE, MAYBE, MAYBE),
    budget_ms=st.builds(BudgetMeans, **dict.fromkeys(BUDGET_PARTS, MAYBE)),
    steps=st.builds(StepStats, NUMBERS, NUMBERS),
    memory=st.just(OperationMemory(MemoryStats(None, None), MemoryStats(None, None), MemoryStats(None, None))),
    quality=st.dictionaries(st.sampled_from([*BUDGET_PARTS, "total_ms"]), QUALITIES, max_size=3),
    client_wait_ms=MAYBE,
    decode_ms=MAYBE,
    encode_ms=MAYBE,
    detached_ms=NUMBERS,
)
EXECUTORS = st.builds(
    ExecutorSummary,
    name=NAMES,
    made_at=st.one_of(FILES, st.just("/srv/app/pools.py:8")),
    max=MAYBE,
    borrowed_peak=COUNTS,
    active_peak=COUNTS,
    pending_peak=COUNTS,
    wait_ms=st.builds(WaitPercentiles, MAYBE, MAYBE),
    wait_max_ms=MAYBE,
    run_ms=MAYBE,
    return_ms=MAYBE,
    at_limit_share=NUMBERS,
    tokens_needed=MAYBE,
    jobs=COUNTS,
    abandoned=COUNTS,
    transport_jobs=COUNTS,
    transport_wait_max_ms=NUMBERS,
    transport_wait_ms=NUMBERS,
    holders=st.lists(NAMES, max_size=6).map(tuple),
)
STEPS = st.builds(
    SlowStep,
    tool=NAMES,
    ms=NUMBERS,
    cause=st.sampled_from(get_args(Cause)),
    file=FILES,
    line=st.one_of(st.none(), COUNTS),
    function=st.one_of(st.none(), NAMES),
    quality=TAGS,
    count=COUNTS,
    total_ms=NUMBERS,
    p50_ms=NUMBERS,
    running=st.booleans(),
)
FINDINGS = st.builds(
    Finding,
    code=st.sampled_from(["blocking-call", "crowding", "not-enough-data"]),
    severity=st.sampled_from(get_args(Severity)),
    confidence=TAGS,
    subject=NAMES,
    sentence=SENTENCES,
    advice=SENTENCES,
    evidence=st.just({}),
    cost_ms=NUMBERS,
)


def summaries() -> st.SearchStrategy[Summary]:
    """Any Summary: numbers may be infinite or NaN, and nothing needs to fit together."""
    return st.builds(
        Summary,
        format=st.just("1"),
        probe_version=NAMES,
        server=st.builds(
            ServerInfo, NAMES, NAMES, NAMES, st.sampled_from(["stdio", "memory", "http", ""]), NAMES, NAMES
        ),
        window=st.builds(Window, NUMBERS, NUMBERS),
        requests=st.builds(RequestCounts, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
        operations=st.lists(OPERATIONS, max_size=4).map(tuple),
        outstanding=st.builds(Outstanding, COUNTS, MAYBE, COUNTS, st.one_of(st.none(), COUNTS)),
        blocked_by=st.lists(st.builds(BlockedBy, NAMES, NAMES, COUNTS, NUMBERS, NUMBERS, TAGS), max_size=4).map(tuple),
        slow_steps=st.lists(STEPS, max_size=3).map(tuple),
        executors=st.lists(EXECUTORS, max_size=3).map(tuple),
        loop=st.builds(LoopSummary, MAYBE, st.builds(ArrivalDelay, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE), TAGS),
        verdict=st.builds(Verdict, st.sampled_from(["healthy", "not-enough-data", "blocking-call"]), NAMES, SENTENCES),
        findings=st.lists(FINDINGS, max_size=3).map(tuple),
        probe=st.builds(ProbeSelf, MAYBE, COUNTS, st.lists(SENTENCES, max_size=2).map(tuple), COUNTS),
        signals=st.builds(Signals),
        complete=st.booleans(),
        notes=st.lists(SENTENCES, max_size=2).map(tuple),
        clients_waited_ms=MAYBE,
    )
