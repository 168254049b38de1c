"""``op-latency``: document 002's six tables over real stdio, its two bar charts, and what of it is transport."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping

import anyio
from mcp.client import Client

from mcp_probe.aggregate.explain import explain
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Measured, Outcome
from mcp_probe.workloads.bench.statistics import floor_of, ratio_of
from mcp_probe.workloads.scenarios.documents import doc002 as doc
from mcp_probe.workloads.scenarios.operations import (
    LISTS,
    OPERATIONS,
    PROBE_NAMES,
    STAGES,
    WARM_UP,
    Rate,
    Timed,
    closed_loop,
    stages_ms,
    take_turns,
)
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.servers import twin

MODULE = "mcp_probe.workloads.servers.twin"
BARS, HIDDEN = "002 bars", "002 conditions"
LEGACY, MODERN = "stdio, legacy handshake", "stdio, 2026-07-28"
CONCURRENCY = 32
ONE_BY_ONE, ALONE, MANY = "one by one", "one at a time", "many at once"

Found = Mapping[tuple[str, str], Timed]


async def run(bench: Bench) -> Outcome:
    """Every operation one call after another; then in memory, in the newer protocol, raw and pipelined."""
    count = bench.size(200, doc.COUNT)
    found: dict[tuple[str, str], Timed] = {}
    bench.note("The stdio servers run under the probe; what that adds to a call is what `overhead` shows.")
    async with bench.server(MODULE, mode="legacy") as server:
        bench.step("stdio: six operations, taking turns")
        with server.phase(ONE_BY_ONE):
            found |= await take_turns(bench, {LEGACY: server.session.client}, tuple(OPERATIONS), count)
        _tables(bench, found, server, count)
        _bars(bench, found)
        bench.step("stdio: many at once")
        rates = {}
        for workers in (1, CONCURRENCY):
            with server.phase(MANY if workers > 1 else ALONE):
                for name in ("ping", "tool call"):
                    rates[name, workers] = await closed_loop(server.session.client, name, workers, count // 2)
        _rate_rows(bench, rates, server)
    bench.step("in memory")
    async with Client(twin.server, mode="legacy", cache=None) as client:
        await client.list_tools()
        found |= await take_turns(bench, {"in memory": client}, tuple(OPERATIONS), count)
    _other_rows(bench, found, "in memory")
    _share_rows(bench, found, server)
    bench.step("stdio, protocol 2026-07-28")
    async with bench.server(MODULE) as modern:
        found |= await take_turns(bench, {MODERN: modern.session.client}, ("tool call", "resource read"), count)
        _other_rows(bench, found, MODERN)
    bench.step("without an SDK client")
    _raw_rows(bench, await anyio.to_thread.run_sync(_raw_client, count))
    whys = {name: explain(server.seen(ONE_BY_ONE), PROBE_NAMES[name]) for name in OPERATIONS}
    _claims(bench, found, rates, {**whys, MANY: server.why(MANY)})
    return bench.outcome()


# --- rows ---


def _tables(bench: Bench, found: Found, server: ProfiledServer, count: int) -> None:
    for name, documented in doc.OPERATIONS.items():
        timed = found[LEGACY, name]
        stats, first = timed.stats, timed.with_warm_up
        scale, shared = count / doc.COUNT, {"contended": timed.contended, "protocol": LEGACY, "arm": name}
        table = Table(bench, documented.section, series=name, floor=stats.halves, **shared)
        table.put("requests", "", stats.n, doc.COUNT, scale=scale, metric="count", x="count", floor=None)
        note = "sum of the latencies, as the document takes it"
        total = stats.mean * stats.n
        table.put("total", "ms", total, documented.total, scale=scale, metric="total", x="total", note=note)
        table.put("mean", "ms", stats.mean, documented.mean, x="mean")
        why = server.later(ONE_BY_ONE, PROBE_NAMES[name])
        table.put("median", "ms", stats, documented.median, x="median", why=why)
        table.put("minimum", "ms", stats.min, documented.min, x="minimum")
        table.put("maximum", "ms", stats.max, documented.max, x="maximum")
        table.put("P95", "ms", stats.p95, documented.p95, x="P95")
        table.put("P99", "ms", stats.p99, documented.p99, x="P99")
        table.put("standard deviation", "ms", stats.sd, documented.sd, x="sd")
        note = "1000 / mean: no information of its own"
        place = {"metric": "throughput", "x": "throughput"}
        table.put("throughput", "1/s", 1000 / stats.mean, documented.throughput, note=note, **place)
        note = f"the document has no warm-up; here the first {WARM_UP} calls, of {max(timed.warm_up):.2f} ms at most"
        hidden = Table(bench, HIDDEN, series=name, metric="warm-up", x=name, note=note, **shared)
        hidden.put(f"{name}: mean, warm-up included", "ms", first.mean, documented.mean, floor=first.halves)


def _bars(bench: Bench, found: Found) -> None:
    for name, documented in doc.OPERATIONS.items():
        timed = found[LEGACY, name]
        mean, floor = timed.stats.mean, timed.stats.halves
        table = Table(bench, BARS, x=name, contended=timed.contended, protocol=LEGACY, floor=floor, arm=name)
        place = {"metric": "latency", "series": "mean latency"}
        table.put(f"{name}: latency", "ms", mean, documented.mean, **place)
        place = {"metric": "throughput", "series": "throughput"}
        table.put(f"{name}: throughput", "1/s", 1000 / mean, documented.throughput, **place)


def _other_rows(bench: Bench, found: Found, transport: str) -> None:
    """The operations over another transport."""
    table = Table(bench, HIDDEN, metric=transport, series=transport, protocol=transport)
    for (kind, name), timed in found.items():
        if kind == transport:
            table.put(f"{name}: {transport}", "ms", timed.stats, x=name)


def _share_rows(bench: Bench, found: Found, server: ProfiledServer) -> None:
    """What of a call is transport, and where it is in the server."""
    seen = server.seen(ONE_BY_ONE)
    for name in OPERATIONS:
        both = found[LEGACY, name].stats, found["in memory", name].stats
        stdio, memory = (stats.median for stats in both)
        note = f"medians: {stdio:.3f} ms over stdio, {memory:.3f} in memory"
        share = Table(bench, HIDDEN, metric="share", series="transport", x=name, floor=floor_of(*both), note=note)
        fits = 0 <= memory <= stdio
        share.put(f"{name}: transport's share", "%", 100 * (stdio - memory) / stdio if fits else None)
        for stage, ms in stages_ms(seen, name).items():
            note = "mean, as the probe in the server saw it" if stage == next(iter(STAGES)) else ""
            label = f"{name}: {stage}, in the server"
            bench.row(HIDDEN, label, "ms", ms, metric="stages", series=stage, x=name, note=note)


def _raw_rows(bench: Bench, raw: Mapping[str, Timed]) -> None:
    note = "JSON lines written and read without the SDK: what is left is server, pipes and wake-ups"
    for name, timed in raw.items():
        bench.row(HIDDEN, f"{name}: raw client", "ms", timed.stats, metric="raw", series="raw", x=name, note=note)


def _rate_rows(bench: Bench, rates: Mapping[tuple[str, int], Rate], server: ProfiledServer) -> None:
    table = Table(bench, HIDDEN, metric="pipelined", protocol=LEGACY)
    for (name, workers), rate in rates.items():
        label = f"{name}: {workers} at a time, throughput"
        why = server.later(ALONE if workers == 1 else MANY, PROBE_NAMES[name])
        table.put(label, "1/s", rate.per_s, series=name, x=workers, little=rate.little, floor=rate.floor, why=why)


# --- without the SDK's client ---


def _raw_client(count: int) -> dict[str, Timed]:
    """The least a client can do: a line out, a line in, no task, no model. Blocks.

    Raises: LaunchError where the server ends or answers with an error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        client = {"name": "raw", "version": "1"}
        _exchange(process, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}, 0)
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        process.stdin.flush()
        found = {}
        for name, method, params in (
            ("ping", "ping", {}),
            ("tool call", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ):
            taken = [_exchange(process, method, params, number) for number in range(1, WARM_UP + count + 1)]
            found[name] = Timed(tuple(taken[:WARM_UP]), tuple(taken[WARM_UP:]))
        return found
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _exchange(process: subprocess.Popen[bytes], method: str, params: Mapping[str, object], number: int) -> float:
    assert process.stdin is not None and process.stdout is not None
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
    began = time.perf_counter_ns()
    process.stdin.write(line)
    process.stdin.flush()
    answer = process.stdout.readline()
    taken_ms = (time.perf_counter_ns() - began) / 1e6
    if b'"result"' not in answer:
        raise LaunchError(f"The server {MODULE} answered {method} with {answer[:300]!r}; expected a result.")
    return taken_ms


# --- claims ---


def _claims(bench: Bench, found: Found, rates: Mapping[tuple[str, int], Rate], whys: Mapping[str, str]) -> None:
    stats = {name: found[LEGACY, name].stats for name in OPERATIONS}
    medians = {name: one.median for name, one in stats.items()}
    ranked = sorted(medians, key=lambda name: medians[name])
    said = "medians: " + ", ".join(f"{name} {medians[name]:.3f}" for name in ranked) + " ms"
    slowest = max(stats, key=lambda name: stats[name].mean)
    mean = stats[slowest]
    bench.claim(
        doc.CLAIMS["002-1"],
        Measured(mean.mean, mean.ci_low, mean.ci_high, mean.halves, mean.contended),
        said=f"{min(one.mean for one in stats.values()):.3f} to {mean.mean:.3f} ms",
        why=whys.get(slowest, ""),
    )

    def over(dearer: str, cheaper: str) -> Measured:
        return ratio_of(stats[dearer], stats[cheaper])

    next_cheapest = next(name for name in ranked if name != "ping")
    next_dearest = next(name for name in reversed(ranked) if name != "tool call")
    why = whys.get("tool call", "")
    bench.claim(doc.CLAIMS["002-2"], over(next_cheapest, "ping"), over("tool call", next_dearest), said=said, why=why)
    lists = [name for name in ranked if name in LISTS]
    bench.claim(doc.CLAIMS["002-2a"], over("resource read", lists[-1]), said=said, why=whys.get(lists[-1], ""))
    memory = found["in memory", "tool call"].stats.median / found["in memory", "ping"].stats.median
    ratio = over("tool call", "ping")
    said = f"{ratio.value:.2f}× over stdio, {memory:.2f}× in memory"
    bench.claim(doc.CLAIMS["002-3"], ratio, said=said, why=why)
    alike = over(lists[-1], lists[0])
    said = f"{medians[lists[0]]:.3f} to {medians[lists[-1]]:.3f} ms: {alike.value:.2f}×"
    bench.claim(doc.CLAIMS["002-4"], alike, said=said, why=whys.get(lists[-1], ""))
    _concurrency(bench, rates, whys)
    tails = {
        name: Measured(one.p99 / one.mean, floor=one.halves, contended=one.contended) for name, one in stats.items()
    }
    worst = max(tails, key=lambda name: tails[name].value)
    said = ", ".join(f"{name} {each.value:.1f}" for name, each in tails.items())
    bench.claim(doc.CLAIMS["002-8"], list(tails.values()), said=said, why=whys.get(worst, ""))


def _concurrency(bench: Bench, rates: Mapping[tuple[str, int], Rate], whys: Mapping[str, str]) -> None:
    gains = {name: rates[name, CONCURRENCY].per_s / rates[name, 1].per_s for name in ("ping", "tool call")}
    many = [rate for (_, workers), rate in rates.items() if workers == CONCURRENCY]
    least = min(many, key=lambda rate: rate.little.mean_in_flight)
    bench.claim(
        doc.CLAIMS["002-6"],
        Measured(least.little.mean_in_flight, floor=least.floor),
        said=f"{CONCURRENCY} at a time: {least.little.mean_in_flight:.0f} in flight on average; ping "
        f"{gains['ping']:.2f}×, tool call {gains['tool call']:.2f}× the throughput of one at a time",
        why=whys.get(MANY, ""),
    )
