"""`make matrix`: every interpreter, processor, loop and SDK that this machine can run, with the wheel a user gets.

Each cell is tests/platform/cell.py in an environment of its own: a hash-pinned SDK, and the probe's wheel from dist/,
which the installer chooses by its tags. What cannot run here is listed with the reason. Fills docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.compatibility import table, write
from tools.interpreters import ROOT, VERSIONS, Absent, aarch64, interpreter

CELLS = ROOT / ".cells"
PROGRAM = ROOT / "tests" / "platform" / "cell.py"
SDKS = {
    "mcp 1.6": "cell-mcp1.6",
    "mcp 1.22": "cell-mcp1.22",
    "mcp 1.30": "mcp1",
    "mcp 2.0": "cell-mcp2.0",
    "mcp 2.3": "cell-mcp2.3",
    "fastmcp 2": "fastmcp2",
    "fastmcp 3": "fastmcp3",
    "fastmcp 4": "fastmcp4",
}
"""The lock in requirements/ of each."""
AARCH64 = "aarch64-unknown-linux-gnu"
QEMU_SLOWNESS = 8
LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. ``wheel`` is what is installed: the installer's choice, or the pure one."""

    python: str
    sdk: str = "mcp 2.3"
    loop: str = "asyncio"
    native: bool = True
    machine: str = "x86-64"
    wheel: str = "chosen"

    @property
    def accelerator(self) -> str:
        return "pure wheel" if self.wheel == "pure" else "on" if self.native else "off"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cell said of itself, or why it was not run."""

    cell: Cell
    told: dict[str, Any]
    absent: str = ""
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """Every fault, with the transport it was found on."""
        if self.absent:
            return []
        found = [f"{name}: {fault}" for name, one in self.told["transports"].items() for fault in one.get("faults", ())]
        state = self.told["native"]
        if self.cell.accelerator == "on" and state != "active":
            found.insert(0, f"no accelerator: {state}")
        return found


NOT_HERE = (
    ("musl, x86-64 and aarch64", "there is no CPython on musl here; built and audited only, see Wheels"),
    ("aarch64, CPython but 3.11", "Debian's 3.11 is the one that qemu runs here; built and audited only, see Wheels"),
)


def cells() -> list[Cell]:
    """The axes are crossed where they meet: every version, loop and SDK, each with and without the accelerator."""
    found = [Cell(version, native=native) for version in VERSIONS for native in (True, False)]
    found += [Cell("3.13", wheel="pure"), Cell("3.14t", wheel="pure")]
    found.append(Cell("3.13t", sdk="mcp 1.6", wheel="pure"))  # what later ones need is not built for it: pydantic-core
    found += [Cell(version, loop=loop) for version in ("3.13", "3.15") for loop in ("uvloop", "trio", "unknown")]
    found += [Cell("3.13", loop=loop, native=False) for loop in ("uvloop", "trio", "unknown")]
    found += [Cell("3.12", sdk=sdk, native=native) for sdk in SDKS if sdk != "mcp 2.3" for native in (True, False)]
    found += [Cell("3.11", machine="aarch64", native=native) for native in (True, False)]
    return found


# ---- environments ----


def uv() -> str:
    found = shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")
    if not Path(found).exists():
        raise Absent("uv is not here: `make env` fetches it")
    return found


def run(command: Sequence[str | Path], **options: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S, **options
    )
    if done.returncode:
        told = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Absent(f"`{Path(command[0]).name} {command[1]}` failed: {' '.join(told)[-300:]}")
    return done.stdout


def wheel_options(cell: Cell, dist: Path) -> list[str]:
    if cell.wheel == "pure":
        return [str(next(dist.glob("*-py3-none-any.whl")))]
    return ["--no-index", "--find-links", str(dist), "mcp-probe-profiler"]


@functools.cache
def environment(cell: Cell, dist: Path) -> tuple[list[str], dict[str, str]]:
    """(the command of a Python that has SDK and wheel, what it needs in its environment)."""
    lock = ROOT / "requirements" / f"{SDKS[cell.sdk]}.txt"
    python = aarch64() if cell.machine == "aarch64" else interpreter(cell.python)
    mark = hashlib.sha256(lock.read_bytes() + python.version.encode()).hexdigest()[:12]
    folder = CELLS / f"{cell.machine}-{cell.python}-{lock.stem}{'-pure' if cell.wheel == 'pure' else ''}"
    made = folder / "made"
    fresh = made.exists() and made.read_text() == mark
    if not fresh:
        shutil.rmtree(folder, ignore_errors=True)
    installs = [uv(), "pip", "install", "--quiet", "--no-progress"]
    hashed = ["--require-hashes", "--requirements", str(lock)]
    wheel = ["--no-deps", "--no-build", "--reinstall", "--no-cache", *wheel_options(cell, dist)]
    if cell.machine == "aarch64":
        installs += ["--target", str(folder), "--python-platform", AARCH64, "--python-version", cell.python]
        command, needs = [python.command], {"PYTHONPATH": str(folder)}
        needs |= {"CELL_SLOWNESS": str(QEMU_SLOWNESS), "CELL_PYTHON": python.command}
        hashed.append("--only-binary=:all:")
    else:
        if not fresh:
            run([python.command, "-m", "venv", "--without-pip", folder])
        installs += ["--python", str(folder / "bin" / "python")]
        command, needs = [str(folder / "bin" / "python")], {}
    if not fresh:
        run([*installs, *hashed])
    run([*installs, *wheel])
    made.write_text(mark)
    return command, needs


# ---- running ----


def run_cell(cell: Cell, dist: Path) -> Outcome:
    began = time.monotonic()
    base = Cell(cell.python, cell.sdk, machine=cell.machine, wheel=cell.wheel)
    try:
        command, needs = environment(base, dist)
    except Absent as exc:
        return Outcome(cell, {}, absent=str(exc))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MCP_PROBE", "CELL_", "OTEL_"))}
    needs = {**kept, **needs, **({} if cell.native else {"MCP_PROBE_NATIVE": "0"})}
    try:
        told = run([*command, PROGRAM, cell.loop, cell.sdk.split()[0]], env=needs, cwd=CELLS)
        found = json.loads(told.splitlines()[-1])
    except (Absent, subprocess.TimeoutExpired, ValueError, IndexError) as exc:
        found = {"native": "unknown", "transports": {"all": {"faults": [f"the program itself failed: {exc}"]}}}
    return Outcome(cell, found, seconds=time.monotonic() - began)


def describe(outcome: Outcome, transport: str) -> str:
    """One transport of one cell: what was said of each wait beside what it was."""
    one = outcome.told["transports"].get(transport)
    if one is None:
        return "—"
    if "absent" in one:
        return f"— ({one['absent']})"
    if "waits" not in one:
        return "**did not run**"
    parts = [f"{said(wait)}" for wait in one["waits"].values()]
    return ("**false**: " if one["faults"] else "") + "; ".join(parts)


def said(wait: dict[str, Any]) -> str:
    low, high = (f"{wait[key]:.0f}" if wait[key] is not None else "?" for key in ("lo_ms", "hi_ms"))
    if wait["said"] == "unseen":
        return f"not seen of {wait['true_ms']:.0f}"
    return f"{low} of {wait['true_ms']:.0f}" if low == high else f"{low}–{high} of {wait['true_ms']:.0f}"


TRANSPORTS = ("in memory", "stdio", "HTTP")
ABOUT = """\
Each cell is a server whose tool holds the event loop for 500 ms by `time.sleep`. The figures are milliseconds: what the
probe says that other calls waited for it, *of* what they truly waited. On stdio and HTTP the first is of three calls of
`add` that were sent while the loop was held, so they waited in front of the server. The other is of three calls whose
own `sleep` ended meanwhile. Two figures with a dash are the probe's bounds. *Not seen*: the probe blames nobody for
that wait. It may do so on a loop that it does not know, and over HTTP where the kernel does not say when bytes came.

A cell has a fault where

- a figure or a bound is wrong by more than 10 % (or 20 ms), or two bounds lie further apart than that,
- a wait is not seen that can be seen,
- the queue of the calls of `add`, from their arrival to their first step, is wrong by as much, on an unknown loop too,
- the file and line of the slow step are not the true ones,
- a call is not counted,
- the memory that a call asked for is wrong by more than 10 %,
- the server does not end as it should, or a traceback or a warning of ours reaches its stderr.""".splitlines()


def section(outcomes: Sequence[Outcome]) -> list[str]:
    ran = [one for one in outcomes if not one.absent]
    clean = [one for one in ran if not one.faults]
    rows = []
    for one in ran:
        cell = one.cell
        where = one.told.get("python", cell.python) + (", aarch64 (qemu)" if cell.machine == "aarch64" else "")
        where += ", free-threaded" if cell.python.endswith("t") else ""
        waits = [describe(one, name) for name in TRANSPORTS]
        rows.append([where, cell.loop, cell.sdk, cell.accelerator, *waits, len(one.faults) or "none"])
    lines = [
        f"{len(ran)} cells ran, {len(clean)} of them without a fault, with mcp_probe {version()}'s wheels.",
        "",
        *ABOUT,
        "",
        *table(["CPython", "loop", "SDK", "accelerator", *TRANSPORTS, "faults"], rows),
    ]
    faults = [(label(one.cell), fault) for one in ran for fault in one.faults]
    if faults:
        lines += ["", "What was found wrong:", "", *table(["cell", "fault"], faults)]
    absent = [(label(one.cell), one.absent) for one in outcomes if one.absent] + list(NOT_HERE)
    return [*lines, "", "Not run here:", "", *table(["cell", "reason"], absent)]


def label(cell: Cell) -> str:
    return f"{cell.python} {cell.machine}, {cell.loop}, {cell.sdk}, accelerator {cell.accelerator}"


def version() -> str:
    found: list[str] = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "mcp_probe" / "__init__.py").read_text(), re.MULTILINE
    )
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where `make wheels` put them")
    parser.add_argument("--only", default="", help="run only cells whose label contains this; the page is left alone")
    parser.add_argument("--jobs", type=int, default=1, help="cells at once; their waits are real time")
    chosen = parser.parse_args()
    if not list(chosen.dist.glob("*.whl")):
        sys.exit(f"no wheels in {chosen.dist}: run `make wheels`")
    CELLS.mkdir(exist_ok=True)
    wanted = [cell for cell in cells() if chosen.only in label(cell)]
    outcomes = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for one in pool.map(lambda cell: run_cell(cell, chosen.dist.resolve()), wanted):
            outcomes.append(one)
            state = f"not run: {one.absent}" if one.absent else "; ".join(one.faults) or "true"
            print(f"{label(one.cell):70} {one.seconds:4.0f} s  {state}", flush=True)
    results = [{"cell": label(one.cell), "told": one.told, "absent": one.absent} for one in outcomes]
    (CELLS / "matrix.json").write_text(json.dumps(results, indent=1))
    if not chosen.only:
        write("matrix", section(outcomes))
    return int(any(one.faults for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
