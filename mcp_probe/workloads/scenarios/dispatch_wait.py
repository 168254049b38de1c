"""Document 000's exception, which it did not measure: handlers that wait, one by one and in tasks."""

from __future__ import annotations

from functools import partial

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import describe, quickest, ratio_floor
from mcp_probe.workloads.models.dispatch import LIMIT, Form, Order
from mcp_probe.workloads.scenarios.dispatch_rounds import Dispatcher, dispatcher
from mcp_probe.workloads.scenarios.documents.doc000 import CLAIMS
from mcp_probe.workloads.scenarios.tables import Table

WAIT_MS = 1.0
FORMS: tuple[tuple[Form, str], ...] = (
    ("one by one", "one by one"),
    ("anyio tasks", "a task each"),
    ("limit", f"a task each, at most {LIMIT} at once"),
)


async def run(bench: Bench) -> Outcome:
    """The micro benchmark's process, with handlers that wait instead of computing."""
    count = bench.size(300, 1000)
    async with dispatcher() as process:
        bench.step(f"{count} handlers that wait {WAIT_MS:g} ms")
        taken, foreign, contended = await bench.quiet(partial(_measure, bench, process, count))
        why = {form: await process.why(Order(form, "work", 100, WAIT_MS)) for form, _ in FORMS}
    table = Table(bench, "000 conditions", metric="waiting", note="nothing traced; in process, no transport")
    for form, name in FORMS:
        stats = describe(taken[form], foreign_cores=foreign, contended=contended)
        table.put(f"{count:,} × {WAIT_MS:g} ms, {name}", "ms", stats, series=name, x=count, why=why[form])
    ratio = min(taken["one by one"]) / min(taken["anyio tasks"])
    floor = ratio_floor(taken["anyio tasks"], taken["again"])
    both = table.sub(metric="ratio", series="waiting", x=count, floor=floor, contended=contended)
    both.put(f"{count:,} × {WAIT_MS:g} ms, ratio", "×", ratio)
    bench.claim(
        CLAIMS["000-8"],
        quickest(taken["one by one"], taken["anyio tasks"], floor=floor, contended=contended),
        said=f"{min(taken['one by one']):,.0f} ms one by one, {min(taken['anyio tasks']):.1f} ms in tasks, "
        f"{min(taken['limit']):.0f} ms with at most {LIMIT} at once: {ratio:.0f}×",
        why=why["anyio tasks"],
    )
    return bench.outcome()


async def _measure(bench: Bench, process: Dispatcher, count: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    for _ in range(bench.size(quick=2, full=10)):
        for form, label in (*((form, form) for form, _ in FORMS), ("anyio tasks", "again")):
            measured = await process.measure(Order(form, "work", count, WAIT_MS))
            taken.setdefault(label, []).append(measured.wall_ns / 1e6)
    return taken
