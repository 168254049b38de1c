"""A simulated server of which the number of places is known, called as the sweep calls a real one."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from mcp_probe.workloads.bench.own.knee import Burst, Knee, Level, Repeated, knee_of


@dataclass(frozen=True)
class Host:
    """``places``: calls handled at once, ``None`` for any number. Each takes ``wait_ms``, and ``work_ms`` of one CPU.

    ``jitter`` lengthens a call by up to that share, at random; ``drift`` changes the speed from one repeat to the next,
    ``weather`` that of a whole round of repeats, in which each level has its turn.
    """

    places: int | None
    wait_ms: float
    work_ms: float = 0.2
    jitter: float = 0.0
    drift: float = 0.0
    weather: float = 0.0

    def run(
        self, chance: Random, in_flight: int, until_ms: float, *, refill: bool, slow: float = 1.0
    ) -> list[tuple[float, float]]:
        """(sent, answered) of each call; ``refill``: the next is sent when one is answered, until ``until_ms``."""
        slow *= 1 + self.drift * chance.uniform(-1, 1)
        free_at = [0.0] * (self.places if self.places is not None else in_flight)
        cpu_free = 0.0
        events: list[tuple[float, int, str, float]] = []
        waiting: deque[float] = deque()
        done: list[tuple[float, float]] = []
        places, number = len(free_at), 0

        def begin(now: float, sent: float) -> None:
            nonlocal cpu_free, number
            cpu_free = max(now, cpu_free) + self.work_ms * slow
            took = self.wait_ms * slow * (1 + self.jitter * chance.random() ** 3)
            number += 1
            heapq.heappush(events, (cpu_free + took, number, "end", sent))

        for _ in range(in_flight):
            number += 1
            heapq.heappush(events, (0.0, number, "send", 0.0))
        while events:
            now, _, what, sent = heapq.heappop(events)
            if what == "send":
                if places:
                    places -= 1
                    begin(now, now)
                else:
                    waiting.append(now)
                continue
            done.append((sent, now))
            if refill and now < until_ms:
                number += 1
                heapq.heappush(events, (now, number, "send", now))
            if waiting:
                begin(now, waiting.popleft())
            else:
                places += 1
        return done

    def level(self, chance: Random, in_flight: int, span_ms: float, number: int, slow: float) -> Level:
        done = self.run(chance, in_flight, span_ms, refill=True, slow=slow)
        return Level(
            in_flight,
            max(end for _, end in done) / 1e3,
            tuple(end - sent for sent, end in done),
            tuple(end for _, end in done if end <= span_ms),
            round=number,
        )

    def burst(self, chance: Random, count: int) -> Burst:
        return Burst(tuple(end for _, end in self.run(chance, count, 0.0, refill=False)))


def told(host: Host, seed: int, levels: Sequence[int], *, contended: bool = False, repeats: int = 4) -> Knee:
    """What is said of this server."""
    chance = Random(seed)
    span_ms = max(500.0, 6 * host.wait_ms)
    weather = [1 + host.weather * chance.uniform(-1, 1) for _ in range(repeats)]
    measured = [
        Repeated(n, tuple(host.level(chance, n, span_ms, number, slow) for number, slow in enumerate(weather)))
        for n in levels
    ]
    about = host.places or 40
    bursts = [host.burst(chance, max(5, round(2.5 * about))) for _ in range(5)]
    return knee_of(disturbed(measured), bursts) if contended else knee_of(measured, bursts)


def disturbed(levels: Sequence[Repeated]) -> list[Repeated]:
    """The same, while others used the machine."""
    return [replace(each, levels=tuple(replace(level, contended=True) for level in each.levels)) for each in levels]


def levels_around(knee: int) -> list[int]:
    near = {max(1, round(factor * knee)) for factor in (0.6, 0.75, 0.87, 1.0, 1.15, 1.35, 1.7, 2.5, 4.0)}
    return sorted({1, 2, 3} | near)
