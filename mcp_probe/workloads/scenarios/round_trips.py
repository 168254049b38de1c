"""``round-trips``: calls that ask their client something: sampling, elicitation, and protocol 2026-07-28's way.

The client takes a known time for each answer and counts it, so that what the probe says of waiting for the client is
held against both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from mcp_probe.aggregate.explain import what_grew
from mcp_probe.errors import LaunchError
from mcp_probe.model import RequestRecord
from mcp_probe.workloads.bench.context import Bench, Interleaved, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome
from mcp_probe.workloads.bench.statistics import quickest
from mcp_probe.workloads.client import LoadSession
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.talking"
TABLE = "now questions"
Place = Literal["stdio", "sse"]
PLACES: dict[Place, str] = {"stdio": "stdio", "sse": "HTTP, SSE answers"}
RESUMED = "elicitation, by a second request"
NUMBER = 7
COUNTED = 3


class Client:
    """Answers each question after ``think_ms``; keeps how long it took for each."""

    def __init__(self, think_ms: float) -> None:
        self._think_s = think_ms / 1e3
        self.thought_ms: list[float] = []

    @property
    def options(self) -> dict[str, Any]:
        """For the SDK's client."""
        return {"sampling_callback": self._sample, "elicitation_callback": self._elicit}

    async def _think(self) -> None:
        began = time.perf_counter_ns()
        await anyio.sleep(self._think_s)
        self.thought_ms.append((time.perf_counter_ns() - began) / 1e6)

    async def _sample(self, context: Any, parameters: Any) -> CreateMessageResult:
        await self._think()
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=f"{NUMBER}"), model="none")

    async def _elicit(self, context: Any, parameters: Any) -> ElicitResult:
        await self._think()
        return ElicitResult(action="accept", content={"number": NUMBER})


@dataclass(frozen=True, slots=True)
class Way:
    """One kind of call. ``rounds``: how many questions it asks."""

    label: str
    series: str
    tool: str
    rounds: int
    arguments: dict[str, Any] = field(default_factory=dict)


Thought = dict[tuple[Place, str], list[list[float]]]
"""What the client knows of the calls that are counted: how long it took for the answers to each, milliseconds."""


async def run(bench: Bench) -> Outcome:
    """Over stdio and HTTP by the handshake of old, then as protocol 2026-07-28 has it."""
    think_ms = bench.size(20.0, 100.0)
    thought: Thought = {}
    clients = {place: Client(think_ms) for place in PLACES}
    starts = [bench.server(SERVER, transport=place, mode="legacy", options=clients[place].options) for place in PLACES]
    bench.step("starting two servers")
    async with side_by_side(starts) as started:
        servers: dict[Place, ProfiledServer] = dict(zip(PLACES, started, strict=True))
        for place, server in servers.items():
            bench.step(f"questions over {PLACES[place]}")
            ways = _ways(bench)
            taken = await bench.interleaved(
                {way.label: _turn(server.session, way) for way in ways}, bench.size(3, 8), twin=ways[0].label
            )
            for way in ways:
                thought[place, way.label] = await _counted(server, server.session, clients[place], place, way)
            _rows(bench, server, place, ways, taken)
        modern = Client(think_ms)
        way = Way(RESUMED, RESUMED, "resumed", 1)
        async with servers["sse"].connect("auto", modern.options) as session:
            taken = await bench.interleaved({way.label: _turn(session, way)}, bench.size(3, 8), twin=way.label)
            thought["sse", RESUMED] = await _counted(servers["sse"], session, modern, "sse", way)
            _rows(bench, servers["sse"], "sse", [way], taken, "2026-07-28")
    _wait_claim(bench, servers, thought, _ways(bench))
    _together_claim(bench, servers["stdio"], think_ms, _ways(bench))
    _second_request_claim(bench, servers["sse"], thought["sse", RESUMED])
    return bench.outcome()


def _ways(bench: Bench) -> list[Way]:
    ways = [Way("no question", "none", "report", 0, {"count": 0, "kind": "log"})]
    for kind in ("sampling", "elicitation"):
        for rounds in bench.size([1, 4], [1, 4, 16]):
            arguments = {"kind": kind, "rounds": rounds, "together": False}
            ways.append(Way(f"{rounds} × {kind}", f"{kind}, one by one", "ask", rounds, arguments))
    rounds = bench.size(4, 16)
    arguments = {"kind": "sampling", "rounds": rounds, "together": True}
    return [*ways, Way(f"{rounds} × sampling, at once", "sampling, at once", "ask", rounds, arguments)]


def _turn(session: LoadSession, way: Way) -> Timed:
    async def turn() -> None:
        answer = await session.call(way.tool, **way.arguments)
        expected = {"report": "done"}.get(way.tool, str(NUMBER * way.rounds))
        if answer.error is not None or answer.text != expected:
            raise LaunchError(f"{way.label} was answered with {answer.error or answer.text}, not {expected}.")

    return turn


async def _counted(
    server: ProfiledServer, session: LoadSession, client: Client, place: Place, way: Way
) -> list[list[float]]:
    """A few calls whose answers the client times one by one."""
    rounds: list[list[float]] = []
    with server.phase(f"{place} {way.label}"):
        for _ in range(COUNTED):
            client.thought_ms.clear()
            await _turn(session, way)()
            rounds.append(list(client.thought_ms))
    return rounds


def _rows(
    bench: Bench, server: ProfiledServer, place: Place, ways: Sequence[Way], taken: Interleaved, protocol: str = ""
) -> None:
    table = Table(bench, f"{TABLE}, {PLACES[place]}", protocol=protocol, metric="time", floor=taken.floor)
    for way in ways:
        why = server.later(f"{place} {way.label}", way.tool)
        table.put(way.label, "ms", taken.stats[way.label], series=way.series, x=way.rounds, why=why)


def _requests(server: ProfiledServer, place: Place, label: str, tool: str) -> tuple[RequestRecord, ...]:
    return server.seen(f"{place} {label}").only(tool).requests


def _wait_claim(bench: Bench, servers: dict[Place, ProfiledServer], thought: Thought, ways: Sequence[Way]) -> None:
    """Between what the client took and the whole call lies the way there and back, and nothing else."""
    wrong, whole_ms, thought_ms = [], 0.0, 0.0
    for place, server in servers.items():
        for way in ways:
            if way.tool != "ask":
                continue
            requests = _requests(server, place, way.label, "ask")
            for request, each in zip(requests, thought[place, way.label], strict=True):
                waited = (request.client_wait_ns or 0) / 1e6
                least = max(each) if way.arguments["together"] else sum(each)
                most = (request.end_ns - request.arrival_ns) / 1e6
                whole_ms, thought_ms = whole_ms + waited, thought_ms + least
                if not least <= waited <= most or len(each) != way.rounds:
                    wrong.append(f"{way.label} over {place}: {waited:.1f} of {least:.1f}-{most:.1f} ms")
    exactly(
        bench,
        "now-17",
        "the probe says how long a call waited for its client's answers",
        said="; ".join(wrong)
        or f"{whole_ms:.0f} ms of waiting for answers that the clients took {thought_ms:.0f} ms for",
        how="of each call at least what its client took, and at most the whole call",
        fine=not wrong,
        why=servers["stdio"].why(f"stdio {ways[1].label}"),
    )


def _together_claim(bench: Bench, server: ProfiledServer, think_ms: float, ways: Sequence[Way]) -> None:
    together = ways[-1]
    serial = next(way for way in ways if way.rounds == together.rounds and way is not together)
    taken = {
        way.label: [each.end_ns - each.arrival_ns for each in _requests(server, "stdio", way.label, "ask")]
        for way in (serial, together)
    }
    ratio = quickest(taken[serial.label], taken[together.label])
    apart_ms, once_ms = (min(taken[way.label]) / 1e6 for way in (serial, together))
    judged(
        bench,
        "now-18",
        "questions that are asked at once take as long as one of them",
        Asked("at least", (together.rounds / 2,), "blurs"),
        ratio,
        said=f"{together.rounds} questions of {think_ms:g} ms: {apart_ms:.0f} ms one by one, "
        f"{once_ms:.0f} ms at once: {ratio.value:.1f}×",
        how="one by one over at once; quickest calls, as the probe timed them",
        why=what_grew(server.seen(f"stdio {together.label}"), server.seen(f"stdio {serial.label}"), "ask"),
    )


def _second_request_claim(bench: Bench, server: ProfiledServer, thought: list[list[float]]) -> None:
    """While its client thinks, nothing of the call is in the server: the first request ends before, the next after."""
    requests = sorted(_requests(server, "sse", RESUMED, "resumed"), key=lambda each: each.arrival_ns)
    pairs = list(zip(requests[::2], requests[1::2], strict=False))
    apart_ms = [(second.arrival_ns - first.end_ns) / 1e6 for first, second in pairs]
    took_ms = [sum(each) for each in thought]
    least = min(apart_ms, default=0.0)
    fine = len(requests) == 2 * COUNTED and all(gap >= took for gap, took in zip(apart_ms, took_ms, strict=True))
    exactly(
        bench,
        "now-19",
        "in protocol 2026-07-28 a call holds nothing in the server while its client is asked",
        said=f"{len(requests)} requests for {COUNTED} calls; at least {least:.0f} ms between the two of a call, "
        f"for answers that took {min(took_ms):.0f} ms",
        how="two requests a call; the second comes no sooner than the answer is there",
        fine=fine,
        why=server.why(f"sse {RESUMED}"),
    )
