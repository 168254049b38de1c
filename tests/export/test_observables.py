"""Observable instruments that outlive the probes that answer for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from mcp_probe.export.observables import Observables
from mcp_probe.export.semantic_conventions import MAX_SERIES, Series
from tests.export.collected import Backend, labelled, values

NONE: frozenset[tuple[str, object]] = frozenset()


@pytest.fixture
def backend() -> Backend:
    return Backend()


def probe(backend: Backend) -> Observables:
    return Observables(backend.provider, backend.provider.get_meter("ours"))


def always(value: float, **attributes: str) -> Callable[[], list[tuple[float, Series]]]:
    return lambda: [(value, tuple(attributes.items()))]


def test_after_the_end_a_gauge_answers_once_more_and_a_counter_stays(backend: Backend) -> None:
    ours = probe(backend)
    ours.level("level", "1", "", always(1.0))
    ours.balance("balance", "1", "", always(2.0))
    ours.counter("counter", "1", "", always(3.0))
    ours.close()
    assert set(backend.collect()) == {"level", "balance", "counter"}
    assert {name: values(metric) for name, metric in backend.collect().items()} == {"counter": {NONE: 3.0}}


def test_the_next_probes_readings_take_the_place_of_gauges_and_add_to_counters(backend: Backend) -> None:
    for value in (5.0, 2.0):
        ours = probe(backend)
        ours.level("level", "1", "", always(value))
        ours.counter("counter", "1", "", always(value, reason="x"))
        found = backend.collect()
        ours.close()
    assert values(found["level"]) == {NONE: 2.0}
    assert values(found["counter"]) == {labelled(reason="x"): 7.0}


def test_two_probes_at_a_time_count_together(backend: Backend) -> None:
    for value in (5.0, 2.0):
        probe(backend).counter("counter", "1", "", always(value))
    assert values(backend.collect()["counter"]) == {NONE: 7.0}


def test_what_stays_of_counters_is_bounded(backend: Backend) -> None:
    for generation in range(3):
        ours = probe(backend)
        ours.counter(
            "counter",
            "1",
            "",
            lambda g=generation: [(1.0, (("tool", f"{g}-{n}"),)) for n in range(1000)],  # type: ignore[misc]
        )
        ours.close()
    counted = values(backend.collect()["counter"])
    assert len(counted) <= MAX_SERIES + 2
    assert sum(counted.values()) == 3000


def test_a_fault_of_ours_is_said_once_and_costs_no_other_metric(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[tuple[float, Series]]:
        raise ZeroDivisionError

    ours = probe(backend)
    ours.level("broken", "1", "", broken)
    ours.counter("whole", "1", "", always(1.0))
    assert set(backend.collect()) == set(backend.collect()) == {"whole"}
    assert [record.name for record in caplog.records] == ["mcp_probe"]


def test_a_provider_that_nobody_uses_any_more_is_let_go() -> None:
    backend = Backend()
    ours = probe(backend)
    ours.counter("counter", "1", "", always(1.0))
    ours.close()
    gone = weakref.ref(backend.provider)
    del ours, backend
    gc.collect()
    assert gone() is None
