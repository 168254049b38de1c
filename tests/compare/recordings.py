"""Small recordings whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from mcp_probe.model import End, Frame
from mcp_probe.record.file import encode, preamble
from tests.frames import make_header, make_request

MS = 1_000_000


def calls(
    name: str = "search", count: int = 400, *, awaiting_ms: float = 20.0, spread: float = 0.1, seed: int = 1
) -> list[Frame]:
    """One after the other: 1 ms on the loop, and a normal wait of some deviation."""
    chance = random.Random(f"{name} {seed}")
    frames: list[Frame] = []
    for number in range(count):
        awaiting = int(awaiting_ms * MS * max(0.1, chance.gauss(1.0, spread)))
        busy = int(MS * chance.gauss(1.0, 0.05))
        request = make_request(number + 1, name, arrival_ns=number * 50 * MS, busy=busy, awaiting=awaiting)
        frames.append(request)
    return frames


def write(path: Path, frames: Iterable[Frame]) -> Path:
    listed = [make_header(), *frames]
    listed.append(End(1_000_000 * MS, "closed"))
    path.write_bytes(b"".join([preamble(), *map(encode, listed)]))
    return path
