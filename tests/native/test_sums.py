"""Sums and transport levels in C and in Python: the same records and jobs add up to the same."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.aggregate import flight
from mcp_probe.aggregate.flight import NEVER_NS, PythonSweep
from mcp_probe.aggregate.memory import MemoryTally
from mcp_probe.aggregate.operations import OperationTally
from mcp_probe.capture.executor import FINISH, TRANSPORT_FINISH, TRANSPORT_JOB, TRANSPORT_START, Pool
from mcp_probe.model import BUDGET_PARTS, Budget, MemoryUse, RequestRecord, Tag
from mcp_probe.record.raw import Job
from tests.native.twins import needs_the_accelerator

pytestmark = needs_the_accelerator

amounts = st.integers(0, 2**40)
loose_tags: tuple[Tag, ...] = ("bounded", "unavailable", "lower", "upper", "estimate")
tags: st.SearchStrategy[Tag] = st.sampled_from(loose_tags)
rows = st.tuples(st.sampled_from(BUDGET_PARTS), tags, st.none() | amounts, st.none() | amounts)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    arrival = draw(amounts)
    plain = draw(st.booleans())
    parts = {part: draw(amounts if plain else st.none() | amounts) for part in BUDGET_PARTS}
    return RequestRecord(
        id=1,
        kind="request",
        method="tools/call",
        name="tool",
        transport="stdio",
        outcome="ok" if plain else draw(st.sampled_from(["ok", "error", "tool_error", "cancelled", "unfinished"])),
        error=None,
        arrival_ns=arrival,
        first_step_ns=arrival,
        result_ns=arrival,
        end_ns=arrival + draw(st.integers(-5, 2**40)),
        budget=Budget(**parts),
        steps=draw(st.integers(0, 9)),
        step_max_ns=draw(amounts),
        immediate_resumes=0,
        sequential_awaits=0,
        executor_run_sum_ns=draw(amounts),
        detached_ns=draw(amounts),
        decode_ns=draw(st.none() | amounts),
        encode_ns=draw(st.none() | amounts),
        client_wait_ns=None if plain else draw(st.none() | amounts),
        request_bytes=draw(st.none() | amounts),
        response_bytes=draw(st.none() | amounts),
        waits=(),
        quality=tuple(draw(st.lists(rows, max_size=3, unique_by=lambda row: row[0]))),
        partial=draw(st.booleans()) and not plain,
    )


def a_tally() -> OperationTally:
    return OperationTally("tools/call", "tool", "request")


def seen(tally: OperationTally) -> dict[str, Any]:
    tally.settle()
    tally.plain = tally.memory.plain = None
    found = asdict(tally)
    for name in ("totals", "write_flush"):
        found[name] = {bucket: list(row) for bucket, row in getattr(tally, name).rows.items()}
    return {key: value for key, value in found.items() if key not in ("memory", "pipe_wait")}


@given(st.lists(records(), max_size=8))
def test_records_add_up_to_the_same(given_records: list[RequestRecord]) -> None:
    native_tally, python_tally = a_tally(), a_tally()
    python_tally.plain = None
    taken = 0
    for record in given_records:
        before = native_tally.exact_count + native_tally.records
        native_tally.add(record)
        taken += before == native_tally.exact_count + native_tally.records
        python_tally.add(record)
    event(f"{taken > 0} taken by the accelerator")
    assert seen(native_tally) == seen(python_tally)


@st.composite
def uses(draw: st.DrawFn) -> MemoryUse:
    named = st.sampled_from(["requested", "peak", "retained"])
    bounds = st.tuples(named, tags, st.none() | amounts, st.none() | amounts)
    return MemoryUse(
        method="native-hybrid",
        scope=draw(st.sampled_from(["all Python allocations"] * 4 + ["another"])),
        requested=draw(st.none() | amounts),
        allocations=1,
        peak=draw(st.none() | amounts),
        retained=draw(st.none() | amounts),
        quality=tuple(draw(st.lists(bounds, max_size=3, unique_by=lambda row: row[0]))),
        result=draw(st.sampled_from([None, None, None, 5])),
    )


def figures_of(tally: MemoryTally) -> dict[str, Any]:
    tally.settle()
    tally.plain = None
    found = asdict(tally)
    for name, figure in tally.figures.items():
        for part in ("values", "least", "most"):
            found["figures"][name][part] = getattr(figure, part).rows
    del found["arguments"], found["result"]
    return found


@given(st.lists(uses(), max_size=8))
def test_memory_figures_add_up_to_the_same(given_uses: list[MemoryUse]) -> None:
    native_tally, python_tally = MemoryTally(), MemoryTally()
    python_tally.plain = None
    for use in given_uses:
        native_tally.add(use)
        python_tally.add(use)
    event(f"{python_tally.measured > sum(native_tally.how.values())} taken by the accelerator")
    assert figures_of(native_tally) == figures_of(python_tally)


def test_what_it_took_is_given_once() -> None:
    sums = native.core.Sums()
    assert sums.take() is None
    assert sums.add("no record") is False
    assert sums.take() is None


jobs = st.one_of(
    st.tuples(amounts, st.just(TRANSPORT_JOB), st.none(), st.tuples(amounts, amounts)),
    st.tuples(amounts, st.just(TRANSPORT_START), st.none(), amounts),
    st.tuples(amounts, st.just(TRANSPORT_FINISH), st.none(), st.just(0)),
)


def pool_after(batch: list[Any], limit: float | None) -> tuple[bool, dict[str, Any]]:
    class Owner:
        pass

    owner = Owner()
    pool = Pool(1, owner, "app", None, lambda owner: (limit, 0))
    pool._last = pool._since = 0
    took = pool._take_transport(batch)
    names = ("_last", "_transport_level", "_transport_jobs", "_transport_wait", "_transport_wait_max", "_borrowed_peak")
    return took, {name: getattr(pool, name) for name in names}


@given(st.lists(jobs, min_size=1, max_size=12), st.sampled_from([None, 1, 2, 40]), st.booleans())
def test_the_transports_own_jobs_change_a_pool_alike(batch: list[Any], limit: float | None, other: bool) -> None:
    if other:
        batch = [*batch, (1, FINISH, None, Job(None, None, "tool", 0))]
    with pytest.MonkeyPatch.context() as patch:
        found = pool_after(batch, limit)
        patch.setattr(native, "core", None)
        assert pool_after(batch, limit) == found
    event(f"taken: {found[0]}")


def test_a_pool_that_the_transport_fills_is_looked_at_job_by_job() -> None:
    both = [(20, TRANSPORT_JOB, None, (0, 3)), (30, TRANSPORT_JOB, None, (10, 4))]
    assert pool_after(both, 2)[0] is False
    took, found = pool_after(both, 3)
    assert took
    assert found["_borrowed_peak"] == 2
    assert found["_transport_wait"] == 7


flown = st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 9), st.integers(0, 5))


def normal(state: Any) -> Any:
    waiting, active, *rest = state
    return waiting, sorted(active), rest


@given(st.lists(st.tuples(flown, st.sampled_from([NEVER_NS, 0, 20])), max_size=40), st.integers(1, 400))
def test_a_sweep_over_arrivals_comes_to_the_same(calls: list[Any], scale: int) -> None:
    """Enough of them that the reordered ones overflow: each list is told many times over, later and later."""
    twins = native.core.Sweep(), PythonSweep()
    for turn in range(1 + 3 * flight.REORDER // (len(calls) or 1)):
        for (arrival, length, write, awaiting), open_since in calls:
            began = (arrival + 35 * turn) * scale * 10_000
            result = began + length * scale * 10_000
            for twin in twins:
                twin.count(began, result, result + write, awaiting, open_since)
    native_state, python_state = (twin.state() for twin in twins)
    event(f"{min(python_state[4][0], 5)} in flight, {'some' if python_state[4][1] else 'no'} gaps")
    assert normal(native_state) == normal(python_state)
    assert native.core.Sweep().state() == PythonSweep().state()


def test_a_sweep_goes_on_from_a_state() -> None:
    sweep = native.core.Sweep()
    for number in range(2 * flight.REORDER):
        sweep.count(number * 100, number * 100 + 250, number * 100 + 260, 0, NEVER_NS)
    again = PythonSweep(*sweep.state())
    assert normal(again.state()) == normal(sweep.state())
    assert again.totals.max_in_flight == 3
