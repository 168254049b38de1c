"""``notifications``: calls that tell their client about their progress, or log, none to a thousand times.

The client counts what it is told. The probe's count of what each call sent is held against that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mcp_probe.aggregate.explain import what_grew
from mcp_probe.aggregate.seen import Seen
from mcp_probe.workloads.bench.context import Bench, Interleaved, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome
from mcp_probe.workloads.bench.statistics import floor_of, line_fit, ratio_of
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.talking"
TABLE = "now notifications"
Kind = Literal["progress", "log"]
KINDS: tuple[Kind, ...] = ("progress", "log")
Place = Literal["stdio", "sse"]
PLACES: dict[Place, str] = {"stdio": "stdio", "sse": "HTTP, SSE answers"}


class Heard:
    """What the client was told, by kind; its callbacks."""

    def __init__(self) -> None:
        self.count = {"progress": 0, "log": 0}

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """For a call."""
        self.count["progress"] += 1

    async def log(self, parameters: Any) -> None:
        """For the client."""
        self.count["log"] += 1


async def run(bench: Bench) -> Outcome:
    """Over stdio and over HTTP, counts by turns."""
    counts = bench.size([0, 10, 100], [0, 1, 10, 100, 1000])
    heard = {place: Heard() for place in PLACES}
    starts = [
        bench.server(SERVER, transport=place, mode="legacy", options={"logging_callback": heard[place].log})
        for place in PLACES
    ]
    bench.step("starting two servers")
    taken: dict[str, Interleaved] = {}
    async with side_by_side(starts) as started:
        servers: dict[Place, ProfiledServer] = dict(zip(PLACES, started, strict=True))
        told: dict[tuple[Place, Kind, int], int] = {}
        for place, server in servers.items():
            bench.step(f"notifications over {PLACES[place]}")
            taken[place] = await _by_turns(bench, server, heard[place], counts)
            for kind in KINDS:
                for count in counts:
                    told[place, kind, count] = await _counted(server, heard[place], kind, count)
            _rows(bench, server, place, counts, taken[place])
    _count_claim(bench, servers, told)
    for claim, place in (("now-15", "stdio"), ("now-16", "sse")):
        _cost_claim(bench, claim, servers[place], PLACES[place], counts, taken[place])
    return bench.outcome()


async def _call(server: ProfiledServer, heard: Heard, kind: Kind, count: int) -> None:
    arguments = {"count": count, "kind": kind}
    await server.session.client.call_tool("report", arguments, progress_callback=heard.progress)


async def _by_turns(bench: Bench, server: ProfiledServer, heard: Heard, counts: Sequence[int]) -> Interleaved:
    def turn(kind: Kind, count: int) -> Timed:
        return lambda: _call(server, heard, kind, count)

    ways = {_label(kind, count): turn(kind, count) for kind in KINDS for count in counts}
    return await bench.interleaved(ways, bench.size(5, 12), twin=_label("progress", counts[-1]), warm_up=1)


async def _counted(server: ProfiledServer, heard: Heard, kind: Kind, count: int) -> int:
    """How many the client heard of in three calls. What was sent comes before the answer, and is handled in order."""
    before = heard.count[kind]
    with server.phase(_label(kind, count)):
        for _ in range(3):
            await _call(server, heard, kind, count)
    return heard.count[kind] - before


def _label(kind: Kind, count: int) -> str:
    return f"{count:,} {kind} notifications"


def _rows(bench: Bench, server: ProfiledServer, place: Place, counts: Sequence[int], taken: Interleaved) -> None:
    table = Table(bench, f"{TABLE}, {PLACES[place]}")
    for kind in KINDS:
        for count in counts:
            label = _label(kind, count)
            why = server.later(label, "report")
            stats, floor = taken.stats[label], taken.floor
            table.put(label, "ms", stats, metric="time", series=kind, x=count, floor=floor, why=why)
        own = [taken.stats[_label(kind, count)] for count in counts]
        contended = any(stats.contended for stats in own)
        slope = _each_ms(taken, kind, counts)
        name, floor = f"each {kind} notification", floor_of(*own)
        note = f"slope of a line through the medians of {', '.join(f'{count:,}' for count in counts)}"
        table.put(name, "ms", slope, metric="each", series=kind, x=kind, floor=floor, contended=contended, note=note)


def _each_ms(taken: Interleaved, kind: Kind, counts: Sequence[int]) -> float:
    return line_fit([(count, taken.stats[_label(kind, count)].median) for count in counts])[1]


def _sent(seen: Seen) -> list[int | None]:
    """Of each call, as the probe counted."""
    return [
        next((value for name, value, _ in each.measures if name == "notifications"), None)
        for each in seen.only("report").requests
    ]


def _count_claim(bench: Bench, servers: dict[Place, ProfiledServer], told: dict[tuple[Place, Kind, int], int]) -> None:
    wrong: list[str] = []
    for (place, kind, count), heard in told.items():
        sent = _sent(servers[place].seen(_label(kind, count)))
        if sent != [count] * 3 or heard != 3 * count:
            wrong.append(f"{_label(kind, count)} over {place}: {sent} counted, {heard} heard")
    whole, most = sum(told.values()), max(count for _, _, count in told)
    exactly(
        bench,
        "now-14",
        "the probe counts the notifications of each call as they were sent, and all of them arrive",
        said="; ".join(wrong) or f"{whole:,} heard by the clients, as many counted, call by call",
        how="every call's count is the number it was told to send; none is lost",
        fine=not wrong,
        why=f"It saw {most:,} sent in each of the calls that sent most.",
    )


def _cost_claim(
    bench: Bench, claim: str, server: ProfiledServer, place: str, counts: Sequence[int], taken: Interleaved
) -> None:
    none, most = _label("progress", 0), _label("progress", counts[-1])
    ratio = ratio_of(taken.stats[most], taken.stats[none], taken.floor)
    each = _each_ms(taken, "progress", counts)
    judged(
        bench,
        claim,
        f"over {place} a call that reports {counts[-1]:,} times takes many times one that does not report",
        Asked("at least", (5.0,), "blurs"),
        ratio,
        said=f"{taken.stats[most].median:.1f} and {taken.stats[none].median:.2f} ms: {ratio.value:.0f}×; "
        f"{each * 1e3:.0f} µs each",
        how="times the call that does not report",
        why=what_grew(server.seen(none), server.seen(most), "report") or server.why(most),
    )
