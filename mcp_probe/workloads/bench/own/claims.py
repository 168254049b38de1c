"""What published comparisons claim, asked of a user's own server: as data, and the figures that a claim is graded by.

Pure functions of what was measured. None decides anything: the grader does. Where a comparison cannot decide a claim,
it hands over no figure, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from mcp_probe.workloads.bench.figures import sentence
from mcp_probe.workloads.bench.grader import ends
from mcp_probe.workloads.bench.own.knee import TOLERANCE, Knee
from mcp_probe.workloads.bench.own.waves import Waves
from mcp_probe.workloads.bench.shapes import Asked, Claim, Measured, Stats
from mcp_probe.workloads.bench.statistics import counted, measured, quickest, ratio_of, scaled
from mcp_probe.workloads.scenarios.documents import doc002

MOST_ADDED = 0.4
"""Of a slow call's time: a quick call beside it, sent after a fifth, that takes so much longer has waited for it."""

CLAIMS = Claim.by_id(
    Claim(
        "000-7",
        "calls that are sent at once take no longer than calls one by one",
        "one by one is 2-2.5× as fast (in process, without a transport)",
        (Asked("at most"),),
        "all at once over one by one, quickest rounds",
    ),
    Claim(
        "001-2",
        "calls that are sent at once take as long as one of them alone",
        "108-112 ms for 5 to 20 calls of 100 ms",
        (Asked("at most", load="up"),),
        "all of them over one, quickest rounds",
    ),
    Claim(
        "001-3",
        "a server that has k places answers N calls in ceil(N / k) waves",
        "208 / 313 / 521 ms for 5 / 10 / 20 calls at a pool of 4",
        (Asked("same", load="blurs"),),
        "all of them over one, over ceil(N / k), quickest rounds",
    ),
    Claim(
        "001-8",
        "a quick call sent beside a slow one does not wait for it",
        "10 ms beside 500 ms; behind it where calls queue",
        (Asked("limit", (MOST_ADDED,), "up"),),
        "what is added to the quick call, as a share of the slow one",
    ),
    doc002.CLAIMS["002-5"],
    Claim(
        "004-3",
        "more calls in flight stop bringing more throughput, and that number can be told",
        "1,508/s at 100 in flight, 252/s at 3,000",
        (Asked("exact", (3,), "blurs", f"readings that agree to {TOLERANCE:.0%}"),),
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What is handed to the grader. ``figures``: of each thing that the claim asks; none: ``untold`` says why."""

    claim: Claim
    said: str
    figures: tuple[Measured, ...] = ()
    untold: str = ""
    value: float | None = None  # the number to keep, where it is not the first figure


def pipelined(one_by_one: Sequence[float], at_once: Sequence[float], *, contended: bool) -> Found:
    """Of rounds of the same calls, in turns, milliseconds."""
    figure = quickest(at_once, one_by_one, contended=contended)
    said = f"{min(one_by_one):,.0f} ms one by one, {min(at_once):,.0f} ms at once: {1 / figure.value:.2f}× as fast"
    return Found(CLAIMS["000-7"], said, (figure,))


def fanned_out(
    alone: Sequence[float], together: Sequence[float], count: int, waves: Waves, *, contended: bool
) -> tuple[Found, Found]:
    """Whether ``count`` calls take as long as one, and whether they come in waves. Rounds of each, milliseconds."""
    figure = quickest(together, alone, contended=contended)
    said = f"{min(alone):,.1f} ms alone, {min(together):,.1f} ms for {count} at once"
    if waves.too_short:
        flat, steps = ((Found(CLAIMS[claim], said, untold=waves.sentence)) for claim in ("001-2", "001-3"))
        return flat, steps
    flat = Found(CLAIMS["001-2"], f"{said}: {figure.value:.2f}×", (figure,))
    if waves.width is None or waves.width >= count:
        blurred = waves.width is None and contended
        others = "; others used this machine, and waves are told by their timing" if blurred else ""
        return flat, Found(CLAIMS["001-3"], said, untold=waves.sentence.removesuffix(".") + others, value=waves.width)
    share = scaled(figure, 1 / ceil(count / waves.width))
    return flat, Found(CLAIMS["001-3"], waves.sentence, (share,), value=waves.width)


def held_up(quick: Stats, beside: Stats, slow: Stats, name: str) -> Found:
    """A quick call alone and sent ``beside`` a slow one, ``name``; all in milliseconds."""
    said = f"{quick.median:,.1f} ms alone, {beside.median:,.1f} ms beside {name} ({slow.median:,.0f} ms)"
    late, usual = ends(measured(beside)), ends(measured(quick))
    low = high = None
    if late is not None and usual is not None:
        low, high = (late[0] - usual[1]) / slow.median, (late[1] - usual[0]) / slow.median
    contended = quick.contended or beside.contended or slow.contended
    figure = Measured((beside.median - quick.median) / slow.median, low, high, contended=contended)
    return Found(CLAIMS["001-8"], said, (figure,))


def not_held_up(name: str, alone_ms: float, least_ms: float) -> Found:
    """Where no call is slow enough to hold another up."""
    why = f"no call takes {least_ms:.0f} ms or more, to send another beside it; name a slow tool with --call"
    return Found(CLAIMS["001-8"], f"the slowest, {name}, takes {alone_ms:,.1f} ms", untold=why)


def between_transports(stdio: Stats, http: Stats) -> Found:
    """The same call over both transports."""
    figure = ratio_of(http, stdio)
    said = f"{stdio.median:,.2f} ms over stdio, {http.median:,.2f} ms over HTTP: {figure.value:.2f}×"
    return Found(CLAIMS["002-5"], said, (figure,))


def kneed(knee: Knee) -> Found:
    """That a number is recommended means that the readings agree: :func:`knee_of` recommends none otherwise."""
    if knee.recommended is None:
        return Found(CLAIMS["004-3"], knee.measured or "no curve", untold=sentence(knee.why))
    agree = counted(len(knee.readings), contended=knee.contended)
    return Found(CLAIMS["004-3"], knee.measured, (agree,), value=float(knee.recommended))
