"""``python -m tests.harm.fuzz [SECONDS]``: loop fuzz on each Python, odd input on each SDK; native and pure.

At last a soak of odd input, whose memory is measured beside a bare server's.
"""

from __future__ import annotations

import sys
import time
from itertools import product
from pathlib import Path
from random import Random

from tests.harm.loop_fuzz import fuzz
from tests.harm.odd_input import MEGABYTE, Pair, Transport, case, grew, growth, shows_raw, soak_case
from tests.harm.running import How, pythons

ROUND = 200
PYTHONS = (Path(sys.executable), Path(".envs/mcp1/bin/python"))


def main(seconds: float) -> int:
    """Run them one after the other, in rounds with a seed of their own."""
    ended = 0
    cores: tuple[How, ...] = ("native", "pure")
    for python in pythons():
        for core in cores:
            until, seed, programs = time.monotonic() + seconds, time.time_ns() % 1_000_000, 0
            first = seed
            said = "the same"
            while time.monotonic() < until:
                try:
                    ran, seen_once = fuzz(python, core, ROUND, seed)
                    programs += ran
                    for difference in seen_once:
                        print(f"seen once, seed {seed}: {difference}", flush=True)
                except Exception as exc:
                    said, ended = f"seed {seed}: {type(exc).__name__}: {exc}", 1
                    break
                seed += 1
            print(f"{python}, {core}, seeds from {first}: {programs} programs, {said}", flush=True)
    return ended


def odd_input(seconds: float) -> int:
    """Odd input to a server on mcp 2.x and one on 1.x, over each transport for ``seconds``."""
    ended = 0
    cores: tuple[How, ...] = ("native", "pure")
    transports: tuple[Transport, ...] = ("stdio", "http", "sse")
    for python, transport, core in product((one for one in PYTHONS if one.exists()), transports, cores):
        until, seed, cases = time.monotonic() + seconds, time.time_ns() % 1_000_000, 0
        pair = Pair(python, core, transport)
        while time.monotonic() < until:
            seed, cases = seed + 1, cases + 1
            if difference := pair.difference(case(Random(seed), transport, 10 * MEGABYTE)):
                print(f"{python}, {transport}, {core}, seed {seed}: {difference}", flush=True)
                ended = 1
                break
        report = pair.close()
        if raw := shows_raw(report):
            print(f"{python}, {transport}, {core}: the console shows {raw}", flush=True)
            ended = 1
        print(f"{python}, {transport}, {core}: {cases} cases", flush=True)
    return ended


def soak(seconds: float) -> int:
    """Odd input with ever new names for ``seconds``, over stdio and HTTP: memory must not grow more than bare."""
    ended = 0
    transports: tuple[Transport, ...] = ("stdio", "http")
    for python, transport in product((one for one in PYTHONS if one.exists()), transports):
        seed, pair = time.time_ns() % 1_000_000, Pair(python, "native", transport, soak=True)
        until, said = time.monotonic() + seconds, None
        while time.monotonic() < until and said is None:
            seed += 1
            if said := pair.difference(soak_case(Random(seed), transport, first=not pair.sizes)):
                said = f"seed {seed}: {said}"
        pair.close()
        told = said or grew(pair.sizes)
        ended |= told is not None
        if told is None:
            more, objects = growth(pair.sizes)
            told = f"{more / 1e6:+.1f} MB beside bare, {objects:+d} objects"
        print(f"soak of {python}, {transport}: {len(pair.sizes)} rounds, {told}", flush=True)
    return ended


if __name__ == "__main__":
    limit_s = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    sys.exit(main(limit_s) | odd_input(limit_s) | soak(limit_s))
