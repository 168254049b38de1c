"""From what the doctor found to a table: what will be seen, how exactly, and why not more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp_probe.adapters.trials import LOOPS
from mcp_probe.launch.sight import Facts
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Paragraph, Role, Span, words
from mcp_probe.report.sections.memory import plainly

ABSENT = "not here"
_NO_REQUEST = "no request is seen"
_ROLES: dict[str, Role] = {"exact": "good", "bounded": "info", "estimate": "info", "lower": "info", ABSENT: "warn"}


@dataclass(frozen=True, slots=True)
class Row:
    """What will be seen of one thing, on each of the loops or in one word for all, and why that is not exact."""

    what: str
    tags: tuple[str, ...]
    because: str = ""


def is_blind(facts: Facts) -> bool:
    """Whether no request would be seen at all."""
    return "requests" in facts.absent or not facts.loops


def rows(facts: Facts, telemetry: str) -> list[Row]:
    """The table. ``telemetry`` says why none can be sent; empty where it can."""
    found = [
        _of_hooks(facts, "requests", "exact", (), facts.absent.get("requests", "")),
        _stdio(facts),
        _http(facts),
        _of_loop(facts, "steps", "steps", "each run of a task on the loop"),
        _of_loop(facts, "wake-ups", "wake_ups", ""),
        _of_loop(facts, "wake-ups by sockets", "sockets", "they lie between two looks of the loop at its sockets"),
        _of_loop(facts, "the loop's idle time", "polls", "uvloop looks at its sockets in C, where no hook reaches"),
        _of_hooks(facts, "thread pools", "exact", ("executors (",)),
        _awaits(facts),
        _memory(facts),
        _of_hooks(facts, "writes", "exact", ("stdio transport", "http transport")),
        Row(
            "waiting for a CPU",
            (ABSENT if "run queue" in facts.absent else "exact",),
            facts.absent.get("run queue", ""),
        ),
        Row("telemetry", (ABSENT if telemetry else "ready",), telemetry),
        _accelerator(facts),
    ]
    return [row for row in found if row.because != _NO_REQUEST]


def _unless(what: str, tag: str, because: str) -> Row:
    return Row(what, (ABSENT,), because) if because else Row(what, (tag,))


def _of_hooks(facts: Facts, what: str, tag: str, prefixes: tuple[str, ...], missing: str = "") -> Row:
    """As exact as ``tag`` where every hook of that name works."""
    if missing or "requests" in facts.absent:
        return Row(what, (ABSENT,), missing or _NO_REQUEST)
    found = {name: state for name, state in facts.hooks.items() if prefixes and name.startswith(prefixes)}
    faults = [f"{name}: {state}" for name, state in found.items() if not state.startswith(("active", "does not apply"))]
    if faults or (prefixes and not found):
        return Row(what, (ABSENT if len(faults) == len(found) else "lower",), "; ".join(faults) or "no hook took hold")
    return Row(what, (tag,))


def _stdio(facts: Facts) -> Row:
    row = _of_hooks(facts, "queue, stdio", "exact", ("stdio transport",))
    return row if row.because else Row(row.what, row.tags, "bounded for what was in the pipe before the server read")


def _http(facts: Facts) -> Row:
    if "requests" not in facts.absent and not {"uvicorn", "hypercorn"} & facts.packages.keys():
        return Row("queue, HTTP", (ABSENT,), "neither uvicorn nor hypercorn is installed")
    row = _of_hooks(facts, "queue, HTTP", "exact", ("http reads", "http transport"))
    if row.because:
        return row
    tag, because = "exact", "to a tick of the kernel; bounded for requests that share a connection"
    if "sockets" in facts.absent:
        tag, because = "bounded", facts.absent["sockets"]
    if "trio" not in facts.loops or "hypercorn" in facts.packages:
        return Row(row.what, (tag,), because)
    tags = tuple(ABSENT if name == "trio" else tag for name in facts.loops)
    return Row(row.what, tags, f"{because}. On trio only hypercorn is followed, which is not installed")


def _of_loop(facts: Facts, what: str, key: str, because: str) -> Row:
    tags = tuple(_shown(facts.loops[name].get(key, "")) for name in facts.loops)
    faults = [
        state for name, state in facts.hooks.items() if name.startswith("steps") and not state.startswith("active")
    ]
    if ABSENT in tags and faults:
        because = "; ".join(faults)
    return Row(what, tags or (ABSENT,), because if set(tags) != {"exact"} else "")


def _shown(tag: str) -> str:
    return ABSENT if tag in ("", "unavailable") else tag


def _awaits(facts: Facts) -> Row:
    row = _of_hooks(facts, "awaits", "exact", ("awaits (",))
    if "requests" in facts.absent or row.because != "no hook took hold":
        return row if row.because else Row(row.what, row.tags, "an estimate, by looks, for libraries without a hook")
    return Row(row.what, row.tags, "switched off (MCP_PROBE_AWAITS)")


def _memory(facts: Facts) -> Row:
    state = facts.hooks.get("memory", "does not apply: no hook took hold")
    if not state.startswith("active ("):
        return Row("memory", (ABSENT,), state.removeprefix("does not apply: "))
    told = state.removeprefix("active (").removesuffix(")")
    if "payload sizes" in told:
        return Row("memory", (ABSENT,), told)
    tag = "exact" if "native-shadow" in told else "bounded" if "native-hybrid" in told else "estimate"
    return Row("memory", (tag,), plainly(told))


def _accelerator(facts: Facts) -> Row:
    state = facts.hooks.get("accelerator", "")
    return Row("accelerator", ("active",) if state == "active" else (ABSENT,), "" if state == "active" else state)


def blocks(facts: Facts, telemetry: str, *, every_hook: bool = False) -> list[Block]:
    """What `mcp-probe doctor` prints; ``every_hook`` names those that work, too."""
    packages = ", ".join(f"{name} {version}" for name, version in facts.packages.items())
    return [
        Paragraph((Span(f"Python {facts.python}, {facts.executable}"),)),
        Paragraph((Span(f"{facts.system}; {packages or 'no package that serves MCP'}", "dim"),)),
        Paragraph((Span(""),)),
        _table(rows(facts, telemetry), tuple(facts.loops) or ("any loop",)),
        *(Paragraph((Span(f"{facts.absent[name]}.", "dim"),)) for name in LOOPS if name in facts.absent),
        *_hooks(facts.hooks, every_hook),
    ]


def _table(found: Iterable[Row], loops: tuple[str, ...]) -> Grid:
    lines: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for row in found:
        tags = row.tags * len(loops) if len(row.tags) == 1 else row.tags
        lines.append((words(row.what), *(words(tag, _ROLES.get(tag, "good")) for tag in tags)))
        if row.because:
            lines.append(Paragraph((Span(f"{row.because}", "dim"),), indent=4))
    return Grid((Column("seen here"), *map(Column, loops)), tuple(lines), ())


def _hooks(hooks: Mapping[str, str], every_hook: bool) -> Iterator[Block]:
    """Hooks that do not work, by name, whether a row tells of them or not: a report of a fault needs them."""
    faults = {name: state for name, state in hooks.items() if not state.startswith(("active", "does not apply"))}
    faults.pop("accelerator", None)
    shown = hooks if every_hook else faults
    if shown:
        yield Heading("hooks" if every_hook else "hooks that do not work here")
        yield from (Paragraph((Span(state),), (Span(f"{name}: ", "strong"),)) for name, state in shown.items())
