"""``python -m tests.harm.fuzz [SECONDS]``: the loop fuzz on each Python found, native and pure."""

from __future__ import annotations

import sys
import time

from tests.harm.loop_fuzz import fuzz
from tests.harm.running import How, pythons

ROUND = 200


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


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0))
