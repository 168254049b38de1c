"""What a leak hunt says of each way to keep memory, beside what the server is known to keep.

``python benchmarks/memory_leaks.py`` runs the server of :mod:`benchmarks.memory_kinds` under ``mcp-probe run --memory
leaks`` in three processes: the kinds that tools own, the one that none does, and the innocents. It returns 0 if at
least eleven of the fifteen leaks are named with tool and line, the other is told as native, large ones within a quarter
of their bytes, no innocent is accused, and no hunt loses its end. With ``--state FILE`` each process's result
is kept there, and a later call goes on where an earlier one was interrupted. ``--write`` puts the table into
docs/memory.md, once all 23 are known.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.memory_kinds import FILLED, KINDS, LARGE, Kind  # noqa: E402
from benchmarks.page import filled  # noqa: E402
from mcp_probe.workloads.client import Call, stdio_client_session  # noqa: E402

PAGE = ROOT / "docs" / "memory.md"

CALLS = 3 * FILLED
AT_ONCE = 10
PAUSE_S = 0.5
"""Between bursts: a hunt looks about twice a second, and three looks are the least that growth is told from."""
NAMED = 11
WITHIN = 0.25

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind: what it keeps, what was told of it, and whether that is right."""

    kind: Kind
    told: str
    is_right: bool
    calls: int = 0
    has_end: bool = True  # of its hunt's recording


def groups() -> list[list[Kind]]:
    """What runs in one process: memory that no tool owns can only be told apart alone."""
    owned = [kind for kind in KINDS.values() if kind.owner == "tool"]
    innocent = [kind for kind in KINDS.values() if kind.owner == "none"]
    return [owned, *([kind] for kind in KINDS.values() if kind.owner == "native"), innocent]


def judged(kinds: Sequence[Kind], summary: Summary) -> Iterator[Row]:
    """What ``summary`` says of ``kinds``."""
    for kind in kinds:
        if kind.owner == "native":
            yield _of_remainder(kind, summary)
        else:
            yield _of_tool(kind, summary)


def _of_tool(kind: Kind, summary: Summary) -> Row:
    rows = {row["name"]: row for row in summary["leaks"]["operations"]}
    row = rows.get(kind.name, {"verdict": "absent", "lines": []})
    if kind.owner == "none":
        return Row(kind, row["verdict"], row["verdict"] == "steady" and not _remainders_that_grow(summary))
    file, lines = kind.lines
    line = row["lines"][0] if row["lines"] else None
    told = row["verdict"] if row["verdict"] != "grows" else f"{row['bytes_per_call']:,.0f} B a call"
    where = "no line" if line is None else f"line {line['line']}"
    is_line = line is not None and line["file"] == file and line["line"] in lines
    is_near = kind.call_bytes < LARGE or abs((row.get("bytes_per_call") or 0) - kind.call_bytes) <= WITHIN * LARGE
    return Row(kind, f"{told}, {where}", row["verdict"] == "grows" and is_line and is_near)


def _of_remainder(kind: Kind, summary: Summary) -> Row:
    process = summary["leaks"]["process"]
    part = next((part for part in (process or {}).get("remainders", ()) if part["kind"] == kind.owner), None)
    if process is None or part is None or part["verdict"] != "grows":
        return Row(kind, "not told" if part is None else part["verdict"], False)
    truth = kind.call_bytes * process["calls"]
    return Row(kind, f"{part['bytes_per_call']:,.0f} B a call", abs(part["bytes"] - truth) <= WITHIN * truth)


def _remainders_that_grow(summary: Summary) -> list[str]:
    parts = (summary["leaks"]["process"] or {}).get("remainders", ())
    return [part["kind"] for part in parts if part["verdict"] == "grows"]


def hunted(kinds: Sequence[Kind], calls: int, folder: Path) -> Summary | None:
    """The summary of a hunt of these kinds, each called so often; ``None`` if the run left no report."""
    output = folder / "summary.json"
    probe = [sys.executable, "-m", "mcp_probe", "run", "--memory", "leaks", "--json", str(output), "--output"]
    command = [*probe, str(folder / "report"), "--", sys.executable, str(ROOT / "benchmarks" / "memory_kinds.py")]

    async def talk() -> None:
        with (folder / "stderr").open("w") as errors:
            async with stdio_client_session(command, environment={"PYTHONPATH": str(ROOT)}, stderr=errors) as session:
                for first in range(0, calls, AT_ONCE):
                    await anyio.sleep(PAUSE_S)
                    numbers = range(first, min(calls, first + AT_ONCE))
                    await session.pipelined(
                        [Call(kind.name, {"number": number}) for number in numbers for kind in kinds]
                    )

    anyio.run(talk)
    report = output.read_text("utf-8") if output.exists() else ""
    return json.loads(report) if report else None


def line_of(row: Row) -> str:
    """A row of the table."""
    keeps = "nothing for long" if row.kind.owner == "none" else f"about {row.kind.call_bytes:,} B, {row.kind.owner}'s"
    return f"| {row.kind.name.replace('_', ' ')} | {keeps} | {row.told} | {'yes' if row.is_right else 'NO'} |"


HEAD = "| kind | a call keeps | told | right |\n|---|---|---|---|"


def section(rows: Sequence[Row], about: str) -> str:
    """The table, what it comes to, and how it was made."""
    calls = sorted({row.calls for row in rows})
    return "\n".join(
        [
            f"{' or '.join(map(str, calls))} calls of each kind, an innocent is full after {FILLED}; {about}.",
            "",
            HEAD,
            *map(line_of, rows),
            "",
            _total(rows),
        ]
    )


def _total(rows: Sequence[Row]) -> str:
    named = sum(row.is_right for row in rows if row.kind.owner == "tool")
    others = [row for row in rows if row.kind.owner != "tool"]
    lost = sum(not row.has_end for row in rows)
    end = "Every hunt has its end." if not lost else f"The hunts of {lost} kinds lost their end."
    return (
        f"{named} named with tool and line; {sum(row.is_right for row in others)} of {len(others)} others right. {end}"
    )


def rows_in(text: str) -> list[Row]:
    """The rows that a state file holds."""
    found = json.loads(text)["rows"]
    return [Row(KINDS[name], told, right, calls, end) for name, told, right, calls, end in found]


def text_of(rows: Sequence[Row]) -> str:
    """A state file of these rows."""
    kept = [(row.kind.name, row.told, row.is_right, row.calls, row.has_end) for row in rows]
    return json.dumps({"rows": kept}, indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="only these")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--state", type=Path, help="a file that keeps what was found")
    parser.add_argument("--write", action="store_true", help="put the table into docs/memory.md")
    return parser


def main() -> int:
    """Run every group that the state does not hold; see the module's text."""
    given = _parser().parse_args()
    rows = rows_in(given.state.read_text("utf-8")) if given.state is not None and given.state.exists() else []
    print("\n".join([HEAD, *map(line_of, rows)]), flush=True)
    missing = False
    for group in groups():
        known = {row.kind.name for row in rows}
        kinds = [kind for kind in group if kind.name not in known and (not given.kinds or kind.name in given.kinds)]
        if not kinds:
            continue
        with tempfile.TemporaryDirectory() as name:
            summary = hunted(kinds, given.calls, Path(name))
        if summary is None:
            missing = True
            print(f"NO REPORT of {', '.join(kind.name for kind in kinds)}", flush=True)
            continue
        for row in judged(kinds, summary):
            rows.append(replace(row, calls=given.calls, has_end=bool(summary["complete"])))
            print(line_of(rows[-1]), flush=True)
        if given.state is not None:
            given.state.write_text(text_of(rows), "utf-8")
    print(_total(rows))
    if given.write and len(rows) == len(KINDS):
        machine = describe_machine()
        about = f"{machine['cores']} CPUs ({machine['cpu']}), Python {machine['python']}, {machine['date']}"
        PAGE.write_text(filled(PAGE.read_text("utf-8"), {"kinds": section(rows, about)}), "utf-8")
    named = sum(row.is_right for row in rows if row.kind.owner == "tool")
    is_right = all(row.has_end and (row.is_right or row.kind.owner == "tool") for row in rows)
    return 0 if is_right and not missing and (given.kinds or named >= NAMED) else 1


if __name__ == "__main__":
    sys.exit(main())
