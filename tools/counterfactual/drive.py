"""Clients of a drawn server: they start it, make its calls in a closed loop, stamp each by their own clock, and end it.

A call that is not answered in time counts with the time after which its client gave it up; a client that gives up twice
in a row stops. Over stdio the start counts, from the spawn to the first answer; over HTTP it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import port_for_now
from tools.counterfactual.draw import Caller, Server
from tools.interpreters import ROOT

STARTS_WITHIN_S = 30.0
IDLE_S = 1.5
"""How long a server with a spin is left alone after its last call, so that its CPU shows."""
ENDS_WITHIN_S = 4.0
REPORTS_WITHIN_S = 20.0
MOST_MISSED = 2
LONGEST_S = 40.0
LARGEST = 1 << 28
VERSION = "2025-06-18"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "clients", "version": "1"}}


class Broken(Exception):
    """A server that does not start, or that ends before its clients are done."""


@dataclass(slots=True)
class Run:
    """What the clients of one run waited, and the answers that they got."""

    waited_s: float = 0.0
    start_s: float = 0.0
    cpu_s: float = 0.0
    """Of the server and the processes that it started, from when it was ready to the end of the load."""
    by_operation: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    failed: int = 0
    given_up: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    stderr: str = ""

    def note(self, operation: str, seconds: float) -> None:
        self.waited_s += seconds
        self.by_operation[operation] += round(seconds * 1e6)


@contextlib.contextmanager
def backend() -> Iterator[str]:
    """Yields the base URL of a backend of its own process."""
    with port_for_now() as port:
        command = [sys.executable, str(Path(__file__).with_name("backend.py")), str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.communicate()


def python_of(sdk: str) -> Path:
    return ROOT / ".envs" / ("servers-mcp1" if sdk in ("mcp1", "fastmcp3") else "servers-mcp2") / "bin" / "python"


def run(server: Server, source: str, service: str, prefix: Sequence[str] = ()) -> Run:
    """Starts ``source`` below ``prefix``, plays the load of ``server``, ends it.

    Raises:
        Broken: It did not start, or it ended before its time; the message has the end of its stderr.
    """
    with tempfile.TemporaryDirectory() as folder, port_for_now() as port:
        script = Path(folder) / "server.py"
        script.write_text(source, "utf-8")
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "PYTHON"))}
        environment |= {"SERVICE": service, "FOLDER": str(scratch), "PORT": str(port)}
        command = [*prefix, str(python_of(server.sdk)), str(script)]
        return asyncio.run(_run(server, command, environment, Path(folder), port))


async def _run(server: Server, command: Sequence[str], environment: Mapping[str, str], folder: Path, port: int) -> Run:
    run = Run()
    with (folder / "stderr").open("w+b") as stderr:
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if server.transport == "stdio" else stderr,
            stderr=stderr,
            env=environment,
            cwd=folder,
            limit=LARGEST,
            start_new_session=True,
        )
        try:
            clients: _Stdio | _Http = _Stdio(process) if server.transport == "stdio" else _Http(port, process)
            async with clients.ready():
                if server.transport == "stdio":
                    run.start_s = time.monotonic() - begun
                    run.note("start", run.start_s)
                before_s = _cpu_s(process.pid)
                await _play(server, clients, run)
                if server.is_measured_by_cpu:
                    await asyncio.sleep(IDLE_S)
                run.cpu_s = _cpu_s(process.pid) - before_s
            if process.returncode is not None:
                raise Broken(f"the server ended by itself ({process.returncode}): {_end_of(stderr)}")
        except (TimeoutError, OSError, EOFError) as exc:
            raise Broken(f"{type(exc).__name__}: {exc}; {_end_of(stderr)}") from exc
        finally:
            await _end(process, server.transport, REPORTS_WITHIN_S if "run" in command else ENDS_WITHIN_S)
            run.stderr = _end_of(stderr)
    return run


def _end_of(stderr: Any) -> str:
    stderr.seek(0)
    return str(stderr.read().decode("utf-8", "replace")[-600:])


async def _end(process: asyncio.subprocess.Process, transport: str, patience_s: float) -> None:
    """As clients do: stdin closes (or SIGINT, over HTTP), then SIGTERM, then SIGKILL to all that it has started."""

    async def is_gone(seconds: float) -> bool:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
        return process.returncode is not None

    with contextlib.suppress(ProcessLookupError, ConnectionError):
        assert process.stdin is not None
        process.stdin.close()
        if transport == "http":
            process.send_signal(signal.SIGINT)
        if not await is_gone(ENDS_WITHIN_S):
            process.terminate()
            await is_gone(patience_s)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _cpu_s(pid: int) -> float:
    """CPU of a process, of its descendants, and of those that have ended. Source: proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        below = [one for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(_cpu_s(int(one)) for one in below)


async def _play(server: Server, clients: _Stdio | _Http, run: Run) -> None:
    answered: dict[int, asyncio.Event] = {}

    async def one(number: int, caller: Caller) -> None:
        others = answered.setdefault(caller.group, asyncio.Event())
        if caller.after_first:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(others.wait(), server.gives_up_s)
        await asyncio.sleep(caller.delay_ms / 1000)
        missed = 0
        async with clients.session() as session:
            for call in range(caller.calls):
                key = f"{caller.operation} {number} {call}"
                begun = time.monotonic()
                run.calls += 1
                try:
                    answer = await asyncio.wait_for(session.call(caller.operation, key), server.gives_up_s)
                    run.answers[key] = answer
                    run.failed += answer.startswith("failed")
                    missed = 0
                except asyncio.TimeoutError:
                    run.given_up += 1
                    missed += 1
                run.note(caller.operation, time.monotonic() - begun)
                if not caller.after_first:
                    others.set()
                if missed == MOST_MISSED:
                    return
                await asyncio.sleep(caller.pause_ms / 1000)

    tasks = [asyncio.create_task(one(number, caller)) for number, caller in enumerate(server.callers)]
    done, late = await asyncio.wait(tasks, timeout=LONGEST_S)
    for task in late:
        task.cancel()
    failures = [exc for task in done if (exc := task.exception()) is not None]
    if failures:
        raise failures[0]


def _digest(message: Mapping[str, Any]) -> str:
    result = message.get("result", {})
    if "error" in message or result.get("isError"):
        return "failed: " + json.dumps(message.get("error", result))[:300]
    return json.dumps(result.get("content"))[:2000]


class _Stdio:
    """All callers share one pipe, and the session that it is."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait_for(self._ask("hello", "initialize", HELLO), STARTS_WITHIN_S)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield
        finally:
            reader.cancel()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[_Stdio]:
        yield self

    async def call(self, operation: str, key: str) -> str:
        return _digest(await self._ask(key, "tools/call", {"name": operation, "arguments": {"text": key}}))

    async def _ask(self, id: str, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await self._waiting[id]
        finally:
            del self._waiting[id]

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(ValueError):  # what a server printed
                message = json.loads(line)
                waiting = self._waiting.get(message.get("id")) if "method" not in message else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EOFError("the server closed its stdout"))


class _Http:
    """Each caller has a connection and, for tools, a session of its own."""

    def __init__(self, port: int, process: asyncio.subprocess.Process) -> None:
        self._port, self._process = port, process

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                break
            except OSError:
                if time.monotonic() > until or self._process.returncode is not None:
                    raise
                await asyncio.sleep(0.02)
        yield

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[_HttpSession]:
        session = _HttpSession(self._port)
        try:
            yield session
        finally:
            session.close()


class _HttpSession:
    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._id: str | None = None

    async def call(self, operation: str, key: str) -> str:
        try:
            if operation.startswith("GET "):
                return (await self._exchange(operation, b""))[1].decode("utf-8", "replace")[:2000]
            if self._id is None:
                await self._open()
            params = {"name": operation, "arguments": {"text": key}}
            return _digest(await self._post({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}))
        except BaseException:
            self.close()  # what is on the way there would be taken for the next answer
            raise

    async def _open(self) -> None:
        """Opens the session; that time is the first call's, as its client sees it."""
        await self._post({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO})
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _post(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        headers, body = await self._exchange("POST /mcp", json.dumps(message).encode())
        self._id = headers.get("mcp-session-id", self._id)
        for line in body.splitlines():
            if line.startswith((b"data: {", b"{")):
                found: Mapping[str, Any] = json.loads(line.removeprefix(b"data: "))
                if found.get("id") == message.get("id") and "method" not in found:
                    return found
        if "id" in message:
            return {"error": f"HTTP: {body[:200].decode('utf-8', 'replace')}"}
        return {}

    async def _exchange(self, line: str, body: bytes) -> tuple[Mapping[str, str], bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=LARGEST)
        reader, writer = self._streams
        lines = [f"{line} HTTP/1.1", f"host: 127.0.0.1:{self._port}", "authorization: Bearer token-of-a-client"]
        if body:
            lines += ["content-type: application/json", "accept: application/json, text/event-stream"]
            lines += [f"content-length: {len(body)}"]
            if self._id is not None:
                lines += [f"mcp-session-id: {self._id}", f"mcp-protocol-version: {VERSION}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])}
        if headers.get("transfer-encoding") == "chunked":
            got = b""
            while size := int((await reader.readline()).split(b";")[0], 16):
                got += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        else:
            got = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return headers, got

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
