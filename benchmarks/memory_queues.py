"""Whether a leak hunt knows whose the items of queues are, in another interpreter, with another SDK, transport or loop.

``python benchmarks/memory_queues.py PYTHON stdio|http asyncio|uvloop`` runs the server of
:mod:`benchmarks.queue_kinds` by ``PYTHON``, where an SDK and the probe with its accelerator are installed, under
``mcp-probe run --memory leaks``. The truth is what each call keeps by construction. It returns 0 if every tool whose
consumer keeps something has that many bytes a call (2 %) and its line, what a stack feeds is nobody's (10 %), and the
innocent is steady.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks import queue_kinds  # noqa: E402
from benchmarks.queue_kinds import INNOCENT, ITEM_BYTES, NOBODYS, OWNED  # noqa: E402
from mcp_probe.workloads.client import Call, stdio_client_session  # noqa: E402
from mcp_probe.workloads.raw_http import RawSession  # noqa: E402

CALLS = 120
NEAR, NOBODYS_NEAR = 0.02, 0.1
KEEPS = queue_kinds.keep.__code__.co_firstlineno + 2
NAMES = (*OWNED, NOBODYS, INNOCENT)

Summary = Mapping[str, Any]


def faults(summary: Summary) -> Iterator[str]:
    """What ``summary`` says that is not so."""
    rows = {row["name"]: row for row in summary["leaks"]["operations"]}
    for name in OWNED:
        row = rows.get(name, {"verdict": "absent", "bytes_per_call": None, "lines": []})
        each, lines = row["bytes_per_call"] or 0, [line["line"] for line in row["lines"][:1]]
        if row["verdict"] != "grows" or abs(each - ITEM_BYTES) > NEAR * ITEM_BYTES:
            yield f"{name}: {row['verdict']}, {each:,.0f} B a call"
        if lines != [KEEPS]:
            yield f"{name}: line {lines}, not {KEEPS}"
    for name in (NOBODYS, INNOCENT):
        if rows[name]["verdict"] != "steady":
            yield f"{name}: {rows[name]['verdict']}, {rows[name]['bytes_per_call']} B a call"
    yield from _faults_of_process(summary["leaks"]["process"])
    if not summary["complete"]:
        yield "the recording has no end"


def _faults_of_process(process: Mapping[str, Any] | None) -> Iterator[str]:
    parts = {part["kind"]: part for part in (process or {}).get("remainders", ())}
    if process is None or "nobody" not in parts:
        yield "nothing is told of the process"
        return
    truth = ITEM_BYTES * process["calls"] / len(NAMES)
    nobodys = parts["nobody"]["bytes"]
    if parts["nobody"]["verdict"] != "grows" or abs(nobodys - truth) > NOBODYS_NEAR * truth:
        yield f"nobody's: {parts['nobody']['verdict']}, {nobodys:,} B, not {truth:,.0f} B"


def hunted(python: str, transport: str, loop: str, folder: Path) -> Summary:
    """The summary of one hunt.

    Raises: RuntimeError where the run left no report.
    """
    output = folder / "summary.json"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = "stdio" if transport == "stdio" else str(port)
    probe = [python, "-m", "mcp_probe", "run", "--memory", "leaks", "--json", str(output), "--output"]
    server = ["--", python, str(ROOT / "benchmarks" / "queue_kinds.py"), place, loop]
    with (folder / "stderr").open("w") as errors:
        command = [*probe, str(folder / "report"), *server]
        if transport == "stdio":
            anyio.run(_over_stdio, command, errors)
        else:
            try:
                _over_http(command, f"http://127.0.0.1:{port}/mcp", errors)
            except RuntimeError as exc:
                raise RuntimeError(f"{exc}: {(folder / 'stderr').read_text('utf-8')[-2_000:]}") from None
    if not output.exists():
        raise RuntimeError((folder / "stderr").read_text("utf-8")[-2_000:])
    summary: Summary = json.loads(output.read_text("utf-8"))
    return summary


async def _over_stdio(command: Sequence[str], errors: Any) -> None:
    async with stdio_client_session(command, mode="legacy", stderr=errors) as session:
        for number in range(CALLS):
            await session.pipelined([Call(name, {"number": number}) for name in NAMES])


def _over_http(command: Sequence[str], url: str, errors: Any) -> None:
    with subprocess.Popen(command, stdout=errors, stderr=errors) as server:
        try:
            with _opened(url, server) as session:
                for number in range(CALLS):
                    for name in NAMES:
                        session.call(name, number=number).text()
                time.sleep(2)  # no clock is judged: the hunt looks at most twice a second
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


def _opened(url: str, server: subprocess.Popen[bytes]) -> RawSession:
    """Once it answers. Raises: RuntimeError where the server ended instead."""
    while server.poll() is None:
        session = RawSession(url)
        try:
            session.open()
        except OSError:
            session.close()
            time.sleep(0.1)
        else:
            return session
    raise RuntimeError(f"the server ended with {server.returncode}")


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("transport", nargs="?", choices=("stdio", "http"), default="stdio")
    parser.add_argument("loop", nargs="?", choices=("asyncio", "uvloop"), default="asyncio")
    given = parser.parse_args()
    given.python = os.path.abspath(given.python)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # so that PYTHON's own mcp_probe is run
        summary = hunted(given.python, given.transport, given.loop, Path(name))
    rows = {row["name"]: row for row in summary["leaks"]["operations"]}
    told = [f"{name} {rows[name]['bytes_per_call'] or 0:,.0f}" for name in NAMES if name in rows]
    print(f"{Path(given.python).parent.parent.name} {given.transport} {given.loop}: {', '.join(told)} B a call")
    wrong = list(faults(summary))
    print("\n".join(f"  WRONG: {each}" for each in wrong) or "  as it is", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
