"""``op-latency``: document 002's six tables over real stdio, its two bar charts, and what of it is transport."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping

import anyio
from mcp.client import Client

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Verdict
from mcp_probe.workloads.bench.statistics import floor_of
from mcp_probe.workloads.scenarios.documents.doc002 import COUNT as DOCUMENTED_COUNT
from mcp_probe.workloads.scenarios.documents.doc002 import OPERATIONS as DOCUMENTED
from mcp_probe.workloads.scenarios.documents.doc002 import Operation as Documented
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
from mcp_probe.workloads.scenarios.verdicts import OTHERS, graded
from mcp_probe.workloads.servers import twin

MODULE = "mcp_probe.workloads.servers.twin"
BARS, HIDDEN = "002 bars", "002 conditions"
LEGACY, MODERN = "stdio, legacy handshake", "stdio, 2026-07-28"
CONCURRENCY = 32
ONE_BY_ONE = "one by one"

Found = Mapping[tuple[str, str], Timed]


async def run(bench: Bench) -> Outcome:
    """Every operation one call after another; then in memory, in the newer protocol, raw and pipelined."""
    count = bench.size(200, DOCUMENTED_COUNT)
    found: dict[tuple[str, str], Timed] = {}
    bench.note("The stdio servers run under the probe; what that adds to a call is what `overhead` shows.")
    async with bench.server(MODULE, mode="legacy") as server:
        bench.step("stdio: six operations, taking turns")
        with server.phase(ONE_BY_ONE):
            found |= await take_turns(bench, {LEGACY: server.session.client}, tuple(OPERATIONS), count)
        _tables(bench, found, server, count)
        _bars(bench, found)
        bench.step("stdio: many at once")
        rates = {
            (name, workers): await closed_loop(server.session.client, name, workers, count // 2)
            for name in ("ping", "tool call")
            for workers in (1, CONCURRENCY)
        }
        _rate_rows(bench, rates)
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
    _claims(bench, found, rates)
    return bench.outcome()


# --- rows ---


def _tables(bench: Bench, found: Found, server: ProfiledServer, count: int) -> None:
    for name, documented in DOCUMENTED.items():
        timed = found[LEGACY, name]
        stats, first = timed.stats, timed.with_warm_up
        scale, shared = count / DOCUMENTED_COUNT, {"contended": timed.contended, "protocol": LEGACY}
        table = Table(bench, documented.section, series=name, floor=stats.halves, **shared)
        table.put("requests", "", stats.n, DOCUMENTED_COUNT, scale=scale, metric="count", x="count", floor=None)
        note = "sum of the latencies, as the document takes it"
        table.put("total", "ms", stats.mean * stats.n, documented.total, scale=scale, x="total", note=note)
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
    for name, documented in DOCUMENTED.items():
        timed = found[LEGACY, name]
        mean, floor = timed.stats.mean, timed.stats.halves
        table = Table(bench, BARS, x=name, contended=timed.contended, protocol=LEGACY, floor=floor)
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
        share.put(f"{name}: transport's share", "%", 100 * (stdio - memory) / stdio)
        for stage, ms in stages_ms(seen, name).items():
            note = "mean, as the probe in the server saw it" if stage == next(iter(STAGES)) else ""
            label = f"{name}: {stage}, in the server"
            bench.row(HIDDEN, label, "ms", ms, metric="stages", series=stage, x=name, note=note)


def _raw_rows(bench: Bench, raw: Mapping[str, Timed]) -> None:
    note = "JSON lines written and read without the SDK: what is left is server, pipes and wake-ups"
    for name, timed in raw.items():
        bench.row(HIDDEN, f"{name}: raw client", "ms", timed.stats, metric="raw", series="raw", x=name, note=note)


def _rate_rows(bench: Bench, rates: Mapping[tuple[str, int], Rate]) -> None:
    table = Table(bench, HIDDEN, metric="pipelined", protocol=LEGACY)
    for (name, workers), rate in rates.items():
        label = f"{name}: {workers} at a time, throughput"
        table.put(label, "1/s", rate.per_s, series=name, x=workers, little=rate.little, floor=rate.floor)


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


def _claims(bench: Bench, found: Found, rates: Mapping[tuple[str, int], Rate]) -> None:
    stats = {name: found[LEGACY, name].stats for name in OPERATIONS}
    contended = any(found[LEGACY, name].contended for name in OPERATIONS)
    # What others' load adds to a call is not the operation's: the least disturbed call of each is compared then.
    medians = {name: one.min if contended else one.median for name, one in stats.items()}
    kind = "minima, since others used the machine" if contended else "medians"
    said = ", ".join(f"{name} {ms:.3f}" for name, ms in sorted(medians.items(), key=lambda item: item[1]))
    means = [one.mean for one in stats.values()]
    slow = max(medians.values())
    bench.check(
        "002-1",
        "every operation takes less than 1 ms on average",
        documented="0.245 to 0.523 ms",
        measured=f"{min(means):.3f} to {max(means):.3f} ms",
        tolerance="median below 2 ms: another language, another machine",
        verdict=graded(max(means) < 1, slow < 2 or contended),
        value=max(means),
        contended=contended,
    )
    worst = max(medians["ping"] / medians[name] for name in OPERATIONS if name != "ping")
    bench.check(
        "002-2",
        "ping is the cheapest, then lists, a read, a tool call",
        documented=" < ".join(f"{name} {one.mean}" for name, one in _by_mean()),
        measured=f"{kind}: {said} ms",
        tolerance="ping at most 1.02 of every other; tool and read within 10 % of each other either way",
        verdict=_order(medians, worst),
        value=worst,
        contended=contended,
    )
    ratio = medians["tool call"] / medians["ping"]
    memory = found["in memory", "tool call"].stats.min / found["in memory", "ping"].stats.min
    bench.check(
        "002-3",
        "a tool call costs about twice a ping",
        documented="0.523 / 0.245 ms = 2.13×",
        measured=f"{ratio:.2f}× over stdio, {memory:.2f}× in memory (minima)",
        tolerance="1.05-2.5×",
        verdict=graded(1.05 <= ratio <= 2.5),
        value=ratio,
        contended=contended,
    )
    _lists(bench, medians, contended)
    _concurrency(bench, rates)
    tails = {name: one.p99 / one.mean for name, one in stats.items()}
    bench.check(
        "002-8",
        "latencies are stable, the tail is tight",
        documented="P99 / mean 1.9-2.1",
        measured=", ".join(f"{name} {value:.1f}" for name, value in tails.items()),
        tolerance="reported",
        verdict=graded(max(tails.values()) <= 2.5, max(tails.values()) <= 5, contended=contended),
        why=f"{OTHERS} A tail shows that first." if contended else "",
        value=max(tails.values()),
        contended=contended,
    )


def _by_mean() -> list[tuple[str, Documented]]:
    return sorted(DOCUMENTED.items(), key=lambda item: item[1].mean)


def _order(medians: Mapping[str, float], worst: float) -> Verdict:
    tool, read = medians["tool call"], medians["resource read"]
    right = worst <= 1.02 and (tool > read or abs(tool / read - 1) <= 0.1)
    return graded(right and tool == max(medians.values()), right)


def _lists(bench: Bench, medians: Mapping[str, float], contended: bool) -> None:
    lists = [medians[name] for name in LISTS]
    spread = max(lists) / min(lists)
    bench.check(
        "002-4",
        "the three lists cost the same",
        documented="0.335 to 0.356 ms: 1.06×",
        measured=f"{min(lists):.3f} to {max(lists):.3f} ms: {spread:.2f}×",
        tolerance="within 15 % where they are as long; here two tools, one resource, one prompt",
        verdict=graded(spread <= 1.15, spread <= 1.3),
        why="A list costs what its entries cost: a tool carries two schemas, and there are two of them.",
        value=spread,
        contended=contended,
    )


def _concurrency(bench: Bench, rates: Mapping[tuple[str, int], Rate]) -> None:
    gains = {name: rates[name, CONCURRENCY].per_s / rates[name, 1].per_s for name in ("ping", "tool call")}
    in_flight = min(rate.little.mean_in_flight for (_, workers), rate in rates.items() if workers == CONCURRENCY)
    bench.check(
        "002-6",
        "stdio is serial and has no concurrency",
        documented="concurrency: no",
        measured=f"{CONCURRENCY} at a time: {in_flight:.0f} in flight on average; ping {gains['ping']:.2f}×, "
        f"tool call {gains['tool call']:.2f}× the throughput of one at a time",
        tolerance="more than one request in flight on one session; `fanout` shows the same with calls that wait",
        verdict="does not hold" if in_flight > CONCURRENCY / 2 else "holds",
        why="It is true of a server that reads, handles and writes one line after another, such as the document's.",
        value=in_flight,
    )
