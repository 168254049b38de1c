"""``http-client``: document 004's client patterns, and what "a client per request" really costs.

The document publishes no table of its patterns, only "about 20×"; the rows here are that table.
"""

from __future__ import annotations

from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Measured, Outcome, Why
from mcp_probe.workloads.bench.statistics import counted
from mcp_probe.workloads.models.clients import installed
from mcp_probe.workloads.models.http_load import OWN_CLIENT, Level, Pattern
from mcp_probe.workloads.scenarios import http_runs as runs
from mcp_probe.workloads.scenarios.documents import doc004 as doc
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.servers.delay_http import delay_server

TABLE = "004 patterns"
HIDDEN = "004 conditions"
CONCURRENCY = 50

# The document's four, by its own names.
DOCUMENTED_PATTERNS: tuple[tuple[Pattern, str], ...] = (
    ("per_request", "per_request"),
    ("default", "shared_no_limits"),
    ("limits", "shared_with_limits"),
    ("http2", "http2"),
)
# From a client per request to a shared one in single steps.
STEPS: tuple[tuple[Pattern, str], ...] = (
    ("unverified", "a client per request, TLS verification off"),
    ("one_context", "a client per request, one TLS context for all"),
    ("no_keepalive", "one client, a connection per request"),
)
LABELS: dict[str, str] = {
    **{str(pattern): label for pattern, label in (*DOCUMENTED_PATTERNS, *STEPS)},
    "raw": "no client library, a connection per worker",
}


async def run(bench: Bench) -> Outcome:
    """Every pattern with every library there is."""
    seconds, drain_s, rounds = bench.size(0.3, 1.2), bench.size(0.8, 2.5), bench.size(1, 3)
    patterns = [pattern for pattern, _ in (*DOCUMENTED_PATTERNS, *STEPS)]
    if not installed(["h2"]):
        bench.lacks("h2", "document 004's pattern http2 cannot even be constructed without it")
        patterns.remove("http2")
    with delay_server(runs.DELAY_MS) as server:
        for library in runs.libraries(bench):
            bench.step(f"{library}: {len(patterns)} patterns")
            wanted: list[Pattern] = [*patterns, "default", *(["raw"] if library == runs.SDK_LIBRARY else [])]  # type: ignore[list-item]
            levels = [
                Level(pattern=pattern, concurrency=CONCURRENCY, seconds=seconds, drain_s=drain_s) for pattern in wanted
            ]
            measured = await runs.measure(bench, library, levels, server.url, rounds=rounds)
            found = dict(zip([*patterns, "again", "raw"], measured, strict=False))
            told = runs.Told()
            _rows(bench, library, found, told)
            bench.step(f"{library}: what the probe and the profiler say")
            short = [_few("per_request"), _few("default")]
            told |= await runs.whys(library, short, server.url)
            made = await runs.profile(library, short[0], server.url, construct=bench.size(5, 30))
            _construction(bench, library, made)
            _claims(bench, library, found, made)
    return bench.outcome()


def _few(pattern: Pattern) -> Level:
    """Only to be explained: few enough workers that a client for each request holds the loop and not the run."""
    return Level(pattern=pattern, concurrency=10, seconds=0.3, drain_s=0.5)


def _rows(bench: Bench, library: str, found: dict[str, runs.Found], told: runs.Told) -> None:
    floor = runs.repeat_floor(found["default"], found["again"])
    documented = library == runs.DOCUMENTED_LIBRARY
    table = TABLE if documented else HIDDEN
    for pattern, label in DOCUMENTED_PATTERNS:
        if pattern not in found:
            bench.row(table, f"{library}: {label}, throughput", "1/s", None, note="needs h2")
            continue
        _row(bench, table, found[pattern], label, floor, told.later(_few(pattern)))
    for pattern, label in STEPS:
        _row(bench, HIDDEN, found[pattern], label, floor)
    own, shared = found["per_request"], found["default"]
    ratio = runs.table_of(bench, table, shared, metric="ratio", floor=floor, x="shared / per request")
    ratio.put(
        f"{library}: shared client over a client per request, throughput",
        "×",
        shared.rps / own.rps if own.rps else None,
        doc.PER_REQUEST if documented else None,
        contended=own.contended or shared.contended,
        why=f"{LABELS['per_request']}: {own.cost} {LABELS['default']}: {shared.cost}",
    )
    if "raw" in found:
        place = {"series": "raw", "protocol": found["raw"].version}
        runs.rate_row(bench, HIDDEN, f"{LABELS['raw']}, throughput", found["raw"], x=LABELS["raw"], **place)


def _row(bench: Bench, table: str, one: runs.Found, label: str, floor: float | None, why: Why | str = "") -> None:
    runs.rate_row(bench, table, f"{one.library}: {label}, throughput", one, x=label, floor=floor, why=why)
    note = "" if one.said["answered"] else "nothing was answered"
    if one.level.pattern in OWN_CLIENT:
        note = "of the request alone, as the document takes it: making the client is left out"
    latency = runs.table_of(bench, table, one, metric="latency", x=label, why=one.because(why), note=note)
    latency.put(f"{one.library}: {label}, median latency", "ms", one.said.get("p50_ms"))


CONSTRUCTIONS = {
    "per_request": "as it comes",
    "unverified": "TLS verification off",
    "one_context": "with a TLS context that exists",
}


def _construction(bench: Bench, library: str, made: dict[str, Any]) -> None:
    table = Table(bench, HIDDEN, series=library)
    for pattern, name in CONSTRUCTIONS.items():
        own = table.sub(metric="construction", x=name, note="the event loop is held meanwhile")
        own.put(f"{library}: making a client, {name}", "ms", made["construction_ms"][pattern])
    share = 100 * made["shares"][0].get("load_verify_locations", 0.0)
    profiled = table.sub(metric="profile", x="load_verify_locations", note="by the interpreter's own profiler")
    profiled.put(f"{library}: share of the client's time loading certificates, a client per request", "%", share)
    for name, value in made["default_limits"].items():
        table.put(f"{library}: default limits, {name}", "", value, metric="limits", x=name)


# --- claims ---


def _claims(bench: Bench, library: str, found: dict[str, runs.Found], made: dict[str, Any]) -> None:
    silent = [LABELS.get(name, name) for name, one in found.items() if not one.said["answered"]]
    if silent:
        bench.note(f"{library}: nothing was answered in time with {', '.join(silent)}; claims on it are not judged.")
    else:
        _per_request(bench, library, found)
        _because_of(bench, library, found, made)
        _recommended(bench, library, found)
    if "http2" in found:
        _http2(bench, library, found["http2"])
    _default_limits(bench, library, made["default_limits"])


def _per_request(bench: Bench, library: str, found: dict[str, runs.Found]) -> None:
    own, shared = found["per_request"], found["default"]
    ratio = _over(found, shared, own)
    bench.claim(
        runs.twin("1", library),
        ratio,
        said=f"{own.rps:.0f} and {shared.rps:.0f} requests/s: {ratio.value:.1f}×; "
        f"{found['limits'].rps / own.rps:.1f}× with limits",
        why=f"a request costs {own.cpu_ms or 0:.1f} ms of client CPU with a client of its own, "
        f"{shared.cpu_ms or 0:.2f} ms with a shared one",
    )


def _over(found: dict[str, runs.Found], over: runs.Found, under: runs.Found) -> Measured:
    """Throughput over throughput; A/A: the pattern that ran twice."""
    floor = runs.repeat_floor(found["default"], found["again"])
    return Measured(over.rps / under.rps, floor=floor, contended=over.contended or under.contended)


def _because_of(bench: Bench, library: str, found: dict[str, runs.Found], made: dict[str, Any]) -> None:
    """Of the additional time per request, what is left when only the TLS context is shared: the connection's part."""
    own, context, shared = (1000 / found[name].rps for name in ("per_request", "one_context", "default"))
    floor = runs.repeat_floor(found["default"], found["again"]) or 1.0
    fits = own > shared and floor * context >= shared and context <= floor * own
    share = (context - shared) / (own - shared) if fits else 0.0
    ends = [(context * turn - shared) / (own - shared) for turn in (1 / floor, floor)] if fits else []
    ms = made["construction_ms"]
    bench.claim(
        runs.twin("1a", library),
        *([Measured(share, min(ends), max(ends), contended=found["per_request"].contended)] if fits else []),
        said=f"{own:.1f} ms a request; {context:.1f} with one TLS context for all, {shared:.1f} with one client",
        why=f"Making a client takes {ms['per_request']:.1f} ms of the event loop, {ms['one_context']:.2f} ms with a "
        "TLS context that exists already",
        untold="the three rates are not in the order of their work, so no part of the difference can be told",
    )


def _recommended(bench: Bench, library: str, found: dict[str, runs.Found]) -> None:
    default, limits = found["default"], found["limits"]
    ratio = _over(found, default, limits)
    bench.claim(
        runs.twin("2", library),
        ratio,
        said=f"{default.rps:.0f} requests/s with default limits, {limits.rps:.0f} with 100 connections and 50 kept: "
        f"{ratio.value:.2f}×; A/A {ratio.floor or 1:.2f}×",
        why=f"{limits.cpu_ms or 0:.2f} ms of client CPU a request with limits, {default.cpu_ms or 0:.2f} by default; "
        f"{limits.server.connections} and {default.server.connections} connections opened",
    )


def _http2(bench: Bench, library: str, one: runs.Found) -> None:
    void = one.said["versions"] == ["HTTP/1.1"]
    bench.claim(
        runs.twin("5", library),
        said=f"every response says {one.version}; {one.rps:.0f} requests/s",
        untold="void: without TLS nothing negotiates HTTP/2, so the option changes nothing at all"
        if void
        else "the responses were not what this claim is about",
    )


def _default_limits(bench: Bench, library: str, limits: dict[str, Any]) -> None:
    said = (limits["max_connections"], limits["max_keepalive_connections"], limits["keepalive_expiry"])
    bench.claim(
        runs.twin("6", library),
        counted(sum(limit is not None for limit in said)),
        said=f"{said[0]} connections, {said[1]} kept, for {said[2]} s",
    )
