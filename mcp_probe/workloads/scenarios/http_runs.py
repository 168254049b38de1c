"""The runs behind ``http-client`` and ``http-sweep``: one process per library and level."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Claim, Little, Why
from mcp_probe.workloads.bench.statistics import describe, little, ratio_floor
from mcp_probe.workloads.models.clients import installed
from mcp_probe.workloads.models.http_load import Level, Pattern
from mcp_probe.workloads.models.model_process import ask_model, explain_model
from mcp_probe.workloads.scenarios.documents.doc004 import CLAIMS
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.servers.delay_http import Seen

MODULE = "mcp_probe.workloads.models.http_load"
DELAY_MS = 20.0
DOCUMENTED_LIBRARY = "httpx"
SDK_LIBRARY = "httpx2"
"""What mcp 2.x speaks HTTP with; its figures are not the document's library's, and are never shown as such."""


@dataclass(frozen=True, slots=True)
class Found:
    """One level of one library. ``said`` is of the round with the median throughput, ``rates`` of all rounds."""

    library: str
    level: Level
    said: dict[str, Any]
    rates: tuple[float, ...]
    contended: bool

    @property
    def server(self) -> Seen:
        """What the server saw of that round."""
        return Seen(**self.said["server"])

    @property
    def rps(self) -> float:
        """Answered requests per second of the whole time, drain included, as the document counts."""
        rate: float = self.said["rps"]
        return rate

    @property
    def cpu_ms(self) -> float | None:
        """Client CPU per answered request."""
        return 1000 * float(self.said["cpu_seconds"]) / self.said["answered"] if self.said["answered"] else None

    @property
    def cpu_percent(self) -> float:
        """Client CPU, of one core."""
        return 100 * float(self.said["cpu_seconds"]) / float(self.said["seconds"])

    @property
    def server_percent(self) -> float:
        """Server CPU over the client's time, of one core."""
        return self.server.cpu_ms / float(self.said["seconds"]) / 10

    @property
    def version(self) -> str:
        """As read from the responses."""
        return " and ".join(self.said["versions"]) or "no answer"

    @property
    def little(self) -> Little | None:
        """Of whole turns of a worker: making a client of its own counts, which the document's latency leaves out."""
        said, asked = self.said, self.level.concurrency
        if not said["answered"]:
            return None
        return little(said["answered"], said["seconds"], said["cycle_mean_ms"] / 1000, asked, self.excuse)

    @property
    def excuse(self) -> str:
        """Why the mean number in flight may be off."""
        said, reasons = self.said, []
        if said["cancelled"]:
            reasons.append(f"{said['cancelled']} were cancelled in the drain")
        if said["started"] < self.level.concurrency:
            reasons.append(f"{self.level.concurrency - said['started']} workers sent nothing before the time was over")
        if (over := said["seconds"] - self.level.seconds) > 0.25 * self.level.seconds:
            reasons.append(f"the drain took {over:.1f} s of {said['seconds']:.1f}")
        return "; ".join(reasons)

    @property
    def cost(self) -> str:
        """What it took of the machine."""
        cpu = "" if self.cpu_ms is None else f", {self.cpu_ms:.2f} ms of it a request"
        busy = f"The client used {self.cpu_percent:.0f} % of a core{cpu}, the server {self.server_percent:.0f} %"
        return f"{busy}; {self.server.connections} connections were opened."

    def because(self, told: Why | str) -> Why:
        """What the probe has ``told`` of its pattern, where it was asked, and what this very run cost."""
        return lambda: " ".join(filter(None, (told if isinstance(told, str) else told(), self.cost)))

    @property
    def errors(self) -> int:
        return sum(self.said["errors"].values())

    @property
    def success_percent(self) -> float | None:
        """Answered of all that ended by themselves, as the document counts."""
        ended = self.said["answered"] + self.errors
        return 100 * self.said["answered"] / ended if ended else None


def libraries(bench: Bench) -> list[str]:
    """The document's library first, where it is installed; then the SDK's."""
    found = installed((DOCUMENTED_LIBRARY, SDK_LIBRARY))
    if DOCUMENTED_LIBRARY not in found:
        bench.lacks(DOCUMENTED_LIBRARY, f"the rows of document 004 are {SDK_LIBRARY}'s here")
    return found


def twin(number: str, library: str) -> Claim:
    """A claim of document 004 about a library: the document's own, or its twin."""
    claim = CLAIMS[f"004-{number}"]
    return claim if library == DOCUMENTED_LIBRARY else claim.of(library)


def table_of(bench: Bench, table: str, one: Found, **shared: Any) -> Table:
    """Rows of one level."""
    fields = {"series": one.library, "contended": one.contended, "protocol": f"{one.library}, {one.version}", **shared}
    return Table(bench, table, **fields)


def rate_row(bench: Bench, table: str, label: str, one: Found, *, note: str = "", **more: Any) -> None:
    """Throughput of a level, with what it cost and with Little's law, which carries the excuse where there is one."""
    note = "; ".join(filter(None, (note, one.excuse if one.little is None else "")))
    fields = {"metric": "throughput", **more, "why": one.because(more.get("why", ""))}
    stats = describe(one.rates, first_apart=False, contended=one.contended)
    rate = stats if len(one.rates) > 1 else one.rps
    table_of(bench, table, one).put(label, "1/s", rate, little=one.little, note=note, **fields)


def repeat_floor(one: Found, again: Found) -> float | None:
    """A/A: the same level twice in one process; ``None`` where one of them was not answered at all."""
    return ratio_floor([one.rps], [again.rps]) if one.rps and again.rps else None


async def measure(bench: Bench, library: str, levels: Sequence[Level], url: str, *, rounds: int = 1) -> list[Found]:
    """Every level once a round, all in one fresh process; again where others used the machine, while patience lasts."""

    async def once() -> list[dict[str, Any]]:
        said = await ask_model(MODULE, *arguments(library, list(levels) * rounds, url))
        found: list[dict[str, Any]] = said["levels"]
        return found

    said, _, contended = await bench.quiet(once)
    results = []
    for number, level in enumerate(levels):
        ranked = sorted(said[number :: len(levels)], key=lambda one: float(one["rps"]))
        rates = tuple(one["rps"] for one in said[number :: len(levels)])
        results.append(Found(library, level, ranked[len(ranked) // 2], rates, contended))
    return results


def arguments(library: str, levels: Sequence[Level], url: str) -> list[object]:
    """Command line of the program that runs them."""
    return ["--library", library, "--url", f"{url}/health", "--levels", json.dumps([asdict(level) for level in levels])]


async def whys(library: str, levels: Sequence[Level], url: str) -> dict[tuple[Pattern, int], str]:
    """The probe's sentence for each pattern and number of workers among ``levels``, each from a process of its own:
    a second event loop would have the first one's readings.
    """
    return {
        (level.pattern, level.concurrency): (await explain_model(MODULE, *arguments(library, [level], url)))[1]
        for level in levels
    }


class Told(dict[tuple[Pattern, int], str]):
    """Sentences that come after the rows which want them."""

    def later(self, level: Level) -> Why:
        """That of a level's pattern and number of workers; empty where it was not looked into."""
        return lambda: self.get((level.pattern, level.concurrency), "")


async def profile(library: str, level: Level, url: str, *, construct: int = 0) -> dict[str, Any]:
    """Under the interpreter's profiler: shares of the client's own time; with ``construct``, of making clients too."""
    more = ["--construct", construct] if construct else []
    return await ask_model(MODULE, *arguments(library, [level], url), "--profile", *more)
