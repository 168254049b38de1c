"""Who sent when, told from when requests came and were answered."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from mcp_probe.model import RequestRecord
from mcp_probe.predict.arrivals import arrivals_of
from tests.frames import make_request

MS = 1_000_000


def one_after_the_other(sent: list[int], service_ns: int) -> list[RequestRecord]:
    """A server that does one request at a time, first come first served."""
    found, free = [], 0
    for id, at in enumerate(sent, 1):
        free = max(free, at) + service_ns
        found.append(make_request(id=id, arrival_ns=at, end_ns=free, result_ns=free))
    return found


def of_clients(clients: int, think_ns: int, chance: Random, count: int = 240) -> list[RequestRecord]:
    """Each of them thinks between an answer and its next request; the server does one at a time."""
    ready, found, free = [0] * clients, [], 0
    for id in range(1, count + 1):
        who = min(range(clients), key=ready.__getitem__)
        free = max(free, ready[who]) + 25 * MS
        found.append(make_request(id=id, arrival_ns=ready[who], end_ns=free, result_ns=free))
        ready[who] = free + int(chance.expovariate(1 / think_ns))
    return sorted(found, key=lambda one: one.arrival_ns)


@pytest.mark.parametrize("mean_gap_ms", [30, 40, 60, 125])
def test_open_clients_stay_open_while_a_queue_stands(mean_gap_ms: int) -> None:
    """Answers come all the time then, so each sending follows one; but as many are sent as without the queue."""
    closed = 0
    for seed in range(40):
        chance = Random(seed)
        sent = list(accumulate(int(chance.expovariate(1 / (mean_gap_ms * MS))) for _ in range(240)))
        closed += arrivals_of(one_after_the_other(sent, 25 * MS)).is_closed
    assert closed <= 4


@pytest.mark.parametrize(("clients", "think_ms"), [(1, 50), (1, 200), (2, 50), (4, 50), (8, 50)])
def test_clients_that_think_between_an_answer_and_the_next_request_are_closed(clients: int, think_ms: int) -> None:
    seen = [arrivals_of(of_clients(clients, think_ms * MS, Random(seed))).is_closed for seed in range(40)]
    assert seen.count(False) <= 4
