"""Who sent when, told from when requests came and were answered."""

from __future__ import annotations

from itertools import accumulate
from random import Random

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


def test_open_clients_stay_open_while_a_queue_stands() -> None:
    """Answers come all the time then, so each sending follows one; but as many are sent as without the queue."""
    chance = Random(5)
    for mean_gap_ms in (30, 50):
        sent = list(accumulate(int(chance.expovariate(1 / (mean_gap_ms * MS))) for _ in range(200)))
        assert not arrivals_of(one_after_the_other(sent, 25 * MS)).is_closed


def test_clients_that_think_between_an_answer_and_the_next_request_are_closed() -> None:
    for clients in (1, 2):
        chance = Random(5)
        ready, found, free = [0] * clients, [], 0
        for id in range(1, 150):
            who = min(range(clients), key=ready.__getitem__)
            free = max(free, ready[who]) + 25 * MS
            found.append(make_request(id=id, arrival_ns=ready[who], end_ns=free, result_ns=free))
            ready[who] = free + int(chance.expovariate(1 / (50 * MS)))
        assert arrivals_of(sorted(found, key=lambda one: one.arrival_ns)).is_closed
