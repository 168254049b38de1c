"""What the removal of each cause saves, measured without the probe and kept by what was run.

Each seed is run with all of its causes, and with each of them mended in turn; two rounds, a fresh process each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.counterfactual.draw import Server
from tools.counterfactual.drive import Broken, Run, run

KEPT = Path(__file__).with_name("bare.json")
ROUNDS = 2
SICK_FROM = 0.1
"""A server is sick if the best removal saves this share of what its clients waited (or of its CPU)."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Seconds of each round: with every cause, and with the cause of that number mended."""

    digest: str
    waited_s: tuple[float, ...] = ()
    without_s: tuple[tuple[float, ...], ...] = ()
    cpu_s: tuple[float, ...] = ()
    without_cpu_s: tuple[tuple[float, ...], ...] = ()
    by_cpu: tuple[bool, ...] = ()
    """Of each cause: whether its saving is of the server's CPU."""
    broken: str = ""

    @property
    def savings(self) -> tuple[float, ...]:
        """Of each cause, the share that its removal saves; negative where it costs."""
        return tuple(
            1 - sum(self.without_cpu_s[n]) / sum(self.cpu_s)
            if is_cpu
            else 1 - sum(self.without_s[n]) / sum(self.waited_s)
            for n, is_cpu in enumerate(self.by_cpu)
        )

    @property
    def best(self) -> float:
        return max(self.savings, default=0.0)

    @property
    def is_sick(self) -> bool:
        return self.best >= SICK_FROM


def measure(server: Server, service: str, by_cpu: Sequence[bool], rounds: int = ROUNDS) -> Truth:
    """Runs the seed bare. A server that breaks, or whose mended form answers otherwise, gives a broken truth."""
    waited: list[float] = []
    cpu: list[float] = []
    without: list[list[float]] = [[] for _ in server.causes]
    without_cpu: list[list[float]] = [[] for _ in server.causes]
    try:
        for _ in range(rounds):
            sick = run(server, server.sources[None], service)
            waited.append(round(sick.waited_s, 3))
            cpu.append(round(sick.cpu_s, 3))
            for number, cause in enumerate(server.causes):
                mended = run(server, server.sources[number], service)
                without[number].append(round(mended.waited_s, 3))
                without_cpu[number].append(round(mended.cpu_s, 3))
                if other := difference(sick, mended):
                    return Truth(server.digest, broken=f"without {cause.kind}: {other}")
    except Broken as exc:
        return Truth(server.digest, broken=str(exc))
    return Truth(
        server.digest,
        tuple(waited),
        tuple(map(tuple, without)),
        tuple(cpu),
        tuple(map(tuple, without_cpu)),
        tuple(by_cpu),
    )


def difference(sick: Run, mended: Run) -> str:
    """Says how the answers of two runs differ, in the calls that both answered without an error; else ''."""
    for key, answer in sick.answers.items():
        other = mended.answers.get(key, answer)
        if other != answer and not answer.startswith("failed") and not other.startswith("failed"):
            return f"{key}: {answer[:120]} was answered by {other[:120]}"
    return ""


def read_truths(path: Path = KEPT) -> dict[str, Truth]:
    """Returns what was measured earlier, by seed."""
    if not path.exists():
        return {}
    return {seed: _truth(said) for seed, said in json.loads(path.read_text("utf-8")).items()}


def write_truths(truths: Mapping[str, Truth], path: Path = KEPT) -> None:
    lines = [f"{json.dumps(seed)}: {json.dumps(_plain(truths[seed]))}" for seed in sorted(truths, key=_in_order)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _in_order(seed: str) -> tuple[int, str]:
    return (int(seed), "") if seed.isdigit() else (1 << 30, seed)


def _plain(truth: Truth) -> Mapping[str, Any]:
    return {key: value for key, value in asdict(truth).items() if value}


def _truth(said: Mapping[str, Any]) -> Truth:
    def row(key: str) -> tuple[float, ...]:
        return tuple(said.get(key, ()))

    def rows(key: str) -> tuple[tuple[float, ...], ...]:
        return tuple(map(tuple, said.get(key, ())))

    by_cpu = tuple(map(bool, said.get("by_cpu", ())))
    without, without_cpu = rows("without_s"), rows("without_cpu_s")
    return Truth(said["digest"], row("waited_s"), without, row("cpu_s"), without_cpu, by_cpu, said.get("broken", ""))
