"""A server of a step that blocks, a lock and a pool on each interpreter, SDK, transport and loop, and what each way of
looking says of it: a full recording and all that reads it, the live view, the flight recorder."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from mcp_probe.cli import main as probe
from mcp_probe.model import Header, RequestRecord, StepRecord, Timeline
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.launch.attaching import PROGRAM
from tests.launch.test_page import ids_of
from tests.ports import free_port
from tests.report.trace_checker import faults

ROUNDS = 24
"""Of each tool at least as many calls, so that `what-if` checks their p95, too."""
BLOCK_S, LOCK_S, WORK_S = 0.012, 0.01, 0.02
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    version: str
    sdk: str = "mcp 2.3"
    how: str = "stdio"
    loop: str = "asyncio"
    native: bool = True

    def __str__(self) -> str:
        return f"{self.version}, {self.sdk}, {self.how}, {self.loop}, {'native' if self.native else 'pure'}"


CELLS = [
    Cell(version, sdk, how, loop, native)
    for version in ("3.10", "3.12", "3.13", "3.14", "3.15")
    for sdk in ("mcp 2.3", "mcp 1.30")
    for how, loops in (("stdio", ("asyncio", "uvloop", "trio")), ("http", ("asyncio", "uvloop")))
    for loop in loops
    for native in (True, False)
]


@dataclass
class Seen:
    """What every way of looking said. ``sent`` is the client's own count of calls."""

    sent: Counter[str] = field(default_factory=Counter)
    header: Header | None = None
    recorded: Counter[str] = field(default_factory=Counter)
    timelines: Counter[str] = field(default_factory=Counter)
    summary: Counter[str] = field(default_factory=Counter)
    queried: Counter[str] = field(default_factory=Counter)
    steps: list[tuple[int, float, str]] = field(default_factory=list)
    """(request, milliseconds, place) of those of `block`."""
    lock_holders: Counter[str] = field(default_factory=Counter)
    """Of calls of `locked` that waited for the lock: who held it."""
    trace: list[str] = field(default_factory=list)
    tracks: int = 0
    profiles: int = 0
    page: int = 0
    """Requests that are drawn on it."""
    what_if: tuple[int, str] = (-1, "")
    top: dict[str, Any] = field(default_factory=dict)
    once: str = ""
    flight: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    stderr: str = ""


def say(*arguments: str | Path) -> tuple[int, str, str]:
    """`mcp-probe` with these arguments: exit code, stdout, stderr."""
    with ExitStack() as opened:
        # Real files: what it complains of goes to a descriptor.
        out, errors = (opened.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(errors):
            code = probe([str(argument) for argument in arguments])
        told = []
        for stream in (out, errors):
            stream.seek(0)
            told.append(stream.read())
    return code, told[0], told[1]


def fine(*arguments: str | Path) -> str:
    code, out, errors = say(*arguments)
    assert code == 0, (arguments, code, out[-500:], errors[-500:])
    return out


@contextmanager
def short_runtime_folder() -> Iterator[str]:
    """Sockets have short names, and a test's own folder has a long one."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with TemporaryDirectory(prefix="probe-", dir="/tmp") as name:
        os.environ["XDG_RUNTIME_DIR"] = name
        try:
            yield name
        finally:
            os.environ.pop("XDG_RUNTIME_DIR")
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before


def client_of(cell: Cell, python: Path, folder: Path, runtime: str) -> RawClient:
    """The server under `mcp-probe run`, live, with a flight recorder and a full recording."""
    port = free_port()
    options = ["--record", str(folder / "recording"), "--full", "--live", "--flight", str(folder / "flights")]
    options += ["--flight-seconds", "600", "--output", str(folder / "report")]
    server = [str(python), str(PROGRAM), "stdio" if cell.how == "stdio" else str(port), cell.loop]
    command = [sys.executable, "-m", "mcp_probe", "run", *options, "--", *server]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        **{"HOME": str(folder), "XDG_RUNTIME_DIR": runtime, "MCP_PROBE_NATIVE": "1" if cell.native else "0"},
    }
    if cell.how == "stdio":
        return StdioClient(command, folder, environment, profiled=True)
    return HttpClient(command, folder, environment, port, "/mcp", profiled=True)


def look_at(cell: Cell, python: Path, folder: Path) -> Seen:
    """Run it, look at it while it runs, and read what it left."""
    seen = Seen()
    with short_runtime_folder() as runtime:
        client = client_of(cell, python, folder, runtime)
        with client:
            pid = _call(client, seen, "pid")
            client.wait_for(pid)
            process = client.answers[pid][1]["result"]["content"][0]["text"]
            for _ in range(ROUNDS):
                client.wait_for(*_round(client, seen))
            _look_while_it_hangs(client, seen, process, folder)
    seen.stderr = client.stderr
    _read(seen, folder)
    return seen


def _call(client: RawClient, seen: Seen, tool: str, **arguments: Any) -> str:
    seen.sent[tool] += 1
    return client.call(f"{tool} {seen.sent[tool]}", tool, **arguments)


def _round(client: RawClient, seen: Seen) -> list[str]:
    """Two want the lock, three the pool of two, and one blocks the loop."""
    asked = [_call(client, seen, "locked", name="a", seconds=LOCK_S) for _ in range(2)]
    asked += [_call(client, seen, "pooled", seconds=WORK_S) for _ in range(3)]
    return [*asked, _call(client, seen, "block", seconds=BLOCK_S), _call(client, seen, "add", a=1, b=2)]


def _look_while_it_hangs(client: RawClient, seen: Seen, pid: str, folder: Path) -> None:
    """While one call holds the lock and another waits for it."""
    release = folder / "release"
    hang = [_call(client, seen, "held", name="a", until=str(release))]
    deadline = time.monotonic() + LIMIT_S
    while not _operations(seen.top) >= {"held"}:
        assert time.monotonic() < deadline, seen.top
        seen.top = _top(pid)
    hang.append(_call(client, seen, "locked", name="a", seconds=LOCK_S))
    while not _operations(seen.top) >= {"held", "locked"} or not _waits(seen.top, "locked"):
        assert time.monotonic() < deadline, seen.top
        seen.top = _top(pid)
    seen.once = fine("top", pid, "--once", "--width", "120")
    code, path, told = say("top", "--dump", pid)
    seen.notes += [f"top --dump: exit {code}, {told.strip()}"] if code else []
    release.touch()
    client.wait_for(*hang)
    for frame in read_recording(Path(path.strip())) if not code else ():
        if isinstance(frame, RequestRecord) and frame.name:
            (seen.in_flight if frame.outcome == "unfinished" else seen.flight)[frame.name] += 1


def _top(pid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fine("top", pid, "--json"))["servers"][0]
    return found


def _operations(top: dict[str, Any]) -> set[str]:
    return {request["operation"] for request in top.get("requests", ())}


def _waits(top: dict[str, Any], operation: str) -> list[dict[str, Any]]:
    return [wait for one in top["requests"] if one["operation"] == operation for wait in one["waits"]]


# ---- what it left ----


def _read(seen: Seen, folder: Path) -> None:
    recording = folder / "recording"
    _frames(seen, recording)
    summary = json.loads(fine("report", recording, "--json", "-"))
    seen.summary.update({row["name"]: row["count"] for row in summary["operations"]})
    seen.notes += summary["notes"]
    sql = "SELECT operation, count(*) AS calls FROM requests GROUP BY 1"
    for row in json.loads(fine("query", sql, recording, "--no-cache", "--format", "json")):
        seen.queried[row["operation"]] = row["calls"]
    trace, speedscope, page = (folder / name for name in ("trace.json", "speedscope.json", "page.html"))
    fine("report", recording, "--trace", trace, "--speedscope", speedscope)
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    seen.trace, seen.tracks = faults(events), len({(one["pid"], one["tid"]) for one in events if one["ph"] == "X"})
    seen.profiles = len(json.loads(speedscope.read_text("utf-8"))["profiles"])
    fine("report", recording, "--html", page)
    seen.page = sum(map(len, ids_of(page)))
    code, out, errors = say("what-if", recording, "--offload", "block")
    seen.what_if = code, " ".join((errors if code else out).split())


def _frames(seen: Seen, recording: Path) -> None:
    frames = list(read_recording(recording))
    names = {one.id: one.name or one.method for one in frames if isinstance(one, RequestRecord)}
    for frame in frames:
        if isinstance(frame, Header):
            seen.header = frame
        elif isinstance(frame, RequestRecord):
            seen.recorded[names[frame.id]] += 1
            if frame.name == "locked":
                held = {one.request for wait in frame.awaits or () if wait.kind == "lock" for one in wait.holders}
                seen.lock_holders.update(names.get(one, "?") for one in held)
        elif isinstance(frame, Timeline):
            seen.timelines[names.get(frame.request, "?")] += 1
        elif isinstance(frame, StepRecord) and names.get(frame.request) == "block":
            place = f"{Path(frame.file).name}:{frame.line}" if frame.file else "?"
            seen.steps.append((frame.request, (frame.end_ns - frame.start_ns) / 1e6, place))


# ---- judged ----


def faults_of(cell: Cell, seen: Seen) -> list[str]:
    """What is not as the client, the server's own source or the format have it."""
    sent, found = dict(seen.sent), []

    def equal(what: str, had: object, wanted: object) -> None:
        if had != wanted:
            found.append(f"{what}: {had}, expected {wanted}")

    header = seen.header
    assert header is not None
    equal("python", header.python.rsplit(".", 1)[0], cell.version)
    equal("loop", header.loop, cell.loop)
    equal("sdk", header.sdk_version.split(".")[0], cell.sdk.split()[1].split(".")[0])
    equal("accelerator", header.accelerator == "active", cell.native)
    for what in ("recorded", "timelines", "summary", "queried"):
        equal(what, {name: getattr(seen, what)[name] for name in sent}, sent)
    long = [(request, place) for request, ms, place in seen.steps if ms >= BLOCK_S * 1e3 * 0.98]
    equal("calls of `block` with a long step", len({request for request, _ in long}), sent["block"])
    places = {place for _, place in long} - {"?"}  # a starved watchdog saw no line
    equal("its line", bool(places) and place_of("the line that blocks") not in places, False)
    equal("trace", seen.trace, [])
    waits = _waits(seen.top, "locked")
    equal("top: what `locked` waits for", [wait["kind"] for wait in waits], ["lock"])
    equal("top: where", [Path(wait["where"]).name for wait in waits], [place_of("the line that waits for the lock")])
    equal("top: who holds it", [[one["operation"] for one in wait["holders"]] for wait in waits], [["held"]])
    equal("top --once", all(word in seen.once for word in ("locked", "held", f" {cell.loop} ")), True)
    equal("flight", {name: seen.flight[name] for name in sent if name not in ("held", "pid")}, _ended(sent))
    equal("in flight there", dict(seen.in_flight), {"held": 1, "locked": 1})
    equal("holders of the lock", set(seen.lock_holders) <= {"locked", "held"} and seen.lock_holders["held"], 1)
    equal("profiles", seen.profiles >= 1, True)
    equal("page", seen.page > 0, True)
    equal("what-if", seen.what_if[0] in (0, 2) and "Traceback" not in seen.what_if[1], True)
    equal("stderr", [line for line in seen.stderr.splitlines() if "mcp_probe" in line], [])
    return found


def _ended(sent: dict[str, int]) -> dict[str, int]:
    """What had ended when the flight recording was asked for."""
    return {name: count - (name == "locked") for name, count in sent.items() if name not in ("held", "pid")}


def place_of(mark: str) -> str:
    lines = PROGRAM.read_text("utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return f"{PROGRAM.name}:{number}"
