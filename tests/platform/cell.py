# mypy: ignore-errors
"""One cell of the matrix: is what the probe says of this interpreter, loop and SDK true?

Stands alone: needs an MCP SDK and the installed wheel, nothing of this tree. It starts itself as a server over each
transport, knows every instant of what happens there from the server's own clock, and compares the probe's report.

    python cell.py [asyncio|uvloop|trio|unknown] [mcp|fastmcp]      ->  one JSON object on stdout

Over each transport `block` sits on the loop in `time.sleep` for half a second. Three calls of `add` are sent meanwhile:
they wait in front of the server. Three of `timed` are at their own `sleep`, which ends meanwhile: they wait inside.
Each wait, its holder and the holder's line must be the true ones. Both ends of a figure are within 10 % or 20 ms of the
truth, and no farther apart. What the calls of `add` say they waited in front of the server must be true, too.
Memory: `allocate` asks for 20 million bytes. Load: 200 calls of `plus`, all counted.
"""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

BLOCK_S, LEAD_S, VICTIMS, LOAD = 0.5, 0.25, 3, 200
ALLOCATED = 20_000_000
"""So much that what the SDK itself asks for in a call, up to some 200 000 bytes, is within the 10 %."""
SLOW = float(os.environ.get("CELL_SLOWNESS", "1"))
"""How many times slower than a common machine this one is (qemu): leads are that much longer."""
LIMIT_S = 60 * SLOW
LEAST_WAIT_MS, SCENES = 100, 3
"""What each call must truly wait for the scene to be one; how often it is tried."""
OFF_MS, OFF_SHARE = 20, 0.1
"""A figure may be that far off, and two bounds that far apart: the larger of the two."""
PYTHON = os.environ.get("CELL_PYTHON", sys.executable)
"""An emulated interpreter cannot start itself: it is another machine's program."""


class UnknownLoop(asyncio.AbstractEventLoop):
    """A loop that is none of those the probe knows. One of asyncio's does the work, but this is the running one."""

    OWN = ("__class__", "__dict__", "_inner", "run_forever", "run_until_complete")

    def __init__(self):
        self.__dict__["_inner"] = inner = asyncio.SelectorEventLoop()
        inner.create_future = lambda: asyncio.Future(loop=self)
        inner.set_task_factory(lambda _, coroutine, **options: asyncio.Task(coroutine, loop=self, **options))

    def __getattribute__(self, name):
        own = object.__getattribute__
        return own(self, name) if name in UnknownLoop.OWN else getattr(own(self, "_inner"), name)

    def run_forever(self):
        inner = self._inner
        inner._thread_id = threading.get_ident()
        asyncio._set_running_loop(self)
        try:
            while not inner._stopping:
                inner._run_once()
        finally:
            inner._stopping, inner._thread_id = False, None
            asyncio._set_running_loop(None)

    def run_until_complete(self, future):
        inner, future = self._inner, asyncio.ensure_future(future, loop=self)
        future.add_done_callback(lambda _: inner.stop())
        self.run_forever()
        return future.result()


def sdk_name():
    for name in [os.environ["CELL_SDK"]] if "CELL_SDK" in os.environ else ["fastmcp", "mcp"]:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise SystemExit("there is no MCP SDK here")


def make_server():
    import anyio

    name, version = sdk_name()
    if name == "fastmcp":
        from fastmcp import FastMCP as Server
    elif version.startswith("1."):
        from mcp.server.fastmcp import FastMCP as Server
    else:
        from mcp.server.mcpserver import MCPServer as Server
    server = Server("cell")

    @server.tool()
    async def add() -> str:
        return str(time.monotonic_ns())

    @server.tool()
    async def plus(a: int, b: int) -> str:
        return str(a + b)

    @server.tool()
    async def timed(until: float) -> str:
        began = time.monotonic()
        await anyio.sleep(until - began)
        return json.dumps([int(began * 1e9), int(until * 1e9), time.monotonic_ns()])

    @server.tool()
    async def block(at: float) -> str:
        await anyio.sleep(at - time.monotonic())
        began = time.monotonic_ns()
        time.sleep(BLOCK_S)  # the line
        return json.dumps([began, time.monotonic_ns()])

    @server.tool()
    async def allocate() -> str:
        kept = bytes(ALLOCATED)
        await anyio.sleep(0)
        return str(len(kept))

    return server


def blocking_line():
    lines, first = inspect.getsourcelines(make_server)
    return first + next(index for index, line in enumerate(lines) if "# the line" in line)


# ---- the server's side ----


def backend_of(loop):
    if loop == "trio":
        return {"backend": "trio"}
    if loop == "uvloop":
        return {"backend": "asyncio", "backend_options": {"use_uvloop": True}}
    if loop == "unknown":
        return {"backend": "asyncio", "backend_options": {"loop_factory": UnknownLoop}}
    return {"backend": "asyncio"}


def http_app(server):
    for name in ("streamable_http_app", "http_app"):
        if hasattr(server, name):
            return getattr(server, name)()
    return None


def serve(transport, loop, port):
    import anyio

    server = make_server()
    if transport == "stdio":
        anyio.run(server.run_stdio_async, **backend_of(loop))
        return
    import uvicorn

    config = uvicorn.Config(http_app(server), host="127.0.0.1", port=port, log_level="error", lifespan="on")
    running = uvicorn.Server(config)

    def stop_at_the_end_of_input():
        sys.stdin.buffer.read()
        running.should_exit = True

    threading.Thread(target=stop_at_the_end_of_input, daemon=True).start()
    anyio.run(running.serve, **backend_of(loop))


# ---- the client's side ----


def text_of(answer):
    return answer["result"]["content"][0]["text"]


def message(id, method, **params):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id, tool, **arguments):
    return message(id, "tools/call", name=tool, arguments=arguments)


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "cell", "version": "1"}}
WARM = [("warm", "plus", {"a": 1, "b": 1}), *((f"memory{n}", "allocate", {}) for n in range(3))]
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Stdio:
    """Lines to and from a server process; notes when each was written."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=environment)
        self.answers, self.arrived, self.stderr, self.sent_ns = {}, threading.Condition(), b"", {}
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._drain)]
        for thread in self.threads:
            thread.start()
        self.send(message("hello", "initialize", **HELLO))
        self.wait("hello")
        self.send(READY)

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.arrived:
                if "id" in answer and "method" not in answer:
                    self.answers[answer["id"]] = answer
                self.arrived.notify_all()

    def _drain(self):
        for line in self.process.stderr:
            self.stderr += line

    def send(self, *messages):
        lines = b"".join(json.dumps(one).encode() + b"\n" for one in messages)
        self.sent_ns.update(dict.fromkeys((one.get("id") for one in messages), time.monotonic_ns()))
        self.process.stdin.write(lines)
        self.process.stdin.flush()

    def wait(self, *ids):
        with self.arrived:
            if not self.arrived.wait_for(lambda: all(id in self.answers for id in ids), LIMIT_S):
                raise TimeoutError(
                    f"no answer to {[id for id in ids if id not in self.answers]}: {self.stderr[-500:]!r}"
                )
            return [self.answers[id] for id in ids]

    def close(self):
        self.process.stdin.close()
        try:
            code = self.process.wait(5 * SLOW)
        except subprocess.TimeoutExpired:  # mcp 1.6 outlives its stdin, bare too; clients send this then
            self.process.terminate()
            code = self.process.wait(LIMIT_S)
        for thread in self.threads:
            thread.join(LIMIT_S)
        return code


class Http:
    """One connection per call, each in its own thread; notes when each was written."""

    def __init__(self, command, environment, port):
        self.process = subprocess.Popen(command, stdin=-1, stdout=-3, stderr=-1, env=environment)
        self.port, self.answers, self.threads, self.session, self.sent_ns = port, {}, [], {}, {}
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise TimeoutError(f"no server came up: {self.process.stderr.read()[-500:]!r}") from None
                time.sleep(0.05)
        self.post(message("hello", "initialize", **HELLO))
        self.post(READY)

    def post(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **self.session}
        connection.connect()  # no server need accept it yet
        self.sent_ns[body.get("id")] = time.monotonic_ns()
        connection.request("POST", "/mcp", json.dumps(body), headers)
        response = connection.getresponse()
        if "mcp-session-id" in response.headers:
            self.session["mcp-session-id"] = response.headers["mcp-session-id"]
        told = response.read().decode()
        connection.close()
        lines = [line[5:] for line in told.splitlines() if line.startswith("data:")] or [told]
        for line in lines:
            if line.strip():
                answer = json.loads(line)
                self.answers[answer.get("id")] = answer

    def send(self, *messages):
        for one in messages:
            thread = threading.Thread(target=self.post, args=(one,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def wait(self, *ids):
        for thread in self.threads:
            thread.join(LIMIT_S)
        missing = [id for id in ids if id not in self.answers]
        if missing:
            raise TimeoutError(f"no answer to {missing}")
        return [self.answers[id] for id in ids]

    def close(self):
        self.stderr = self.process.communicate(timeout=LIMIT_S)[1]
        return self.process.returncode


def truth_of(blocked, timed, added):
    """What each tool truly waited for ``block``, and what ``add`` waited in front, by server's and client's instants.

    Milliseconds over all calls. ``added`` is (sent, begun) of each.
    """
    began, ended = blocked
    inside = [max(0, min(ended, resumed) - max(began, due)) for _, due, resumed in timed]
    for_block = [max(0, ended - max(began, sent)) for sent, _ in added]
    front = [begun - sent for sent, begun in added]
    return {"add": sum(for_block) / 1e6, "timed": sum(inside) / 1e6}, sum(front) / 1e6


class SceneSpoiled(Exception):
    """On a busy machine somebody came so late that calls did not wait for the block, or had no CPU for the report."""


def scene_truth(blocked, timed, added):
    truth, front_ms = truth_of(blocked, timed, added)
    least = [("timed", VICTIMS * LEAST_WAIT_MS)] + [("add", VICTIMS * LEAST_WAIT_MS)] * bool(added)
    if any(truth[name] < ms for name, ms in least):
        raise SceneSpoiled(str(truth))
    return truth, front_ms


def converse(client):
    """The scene; returns the true waits."""
    for id, tool, arguments in WARM:
        client.send(call(id, tool, **arguments))
        client.wait(id)
    names = [f"timed{n}" for n in range(VICTIMS)]
    at = time.monotonic() + LEAD_S * SLOW  # the server's clock, too: one machine
    for name in names:
        client.send(call(name, "timed", until=at + 0.1))
    client.send(call("block", "block", at=at))
    time.sleep(at + 0.15 - time.monotonic())
    adds = [f"add{n}" for n in range(VICTIMS)]
    for name in adds:
        client.send(call(name, "add"))
    blocked, *timed = [json.loads(text_of(answer)) for answer in client.wait("block", *names)]
    client.wait(*adds)
    added = [(client.sent_ns[name], int(text_of(client.answers[name]))) for name in adds]
    load = [f"load{n}" for n in range(LOAD)]
    for start in range(0, LOAD, 20):
        client.send(*(call(id, "plus", a=3, b=3) for id in load[start : start + 20]))
    client.wait(*load)
    return scene_truth(blocked, timed, added)


def over_wire(transport, loop):
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.close()
        told = Path(folder) / "summary.json"
        server = [PYTHON, __file__, "serve", transport, loop, str(port)]
        report = ["--output", str(Path(folder) / "report.txt"), "--json", str(told)]
        command = [PYTHON, "-m", "mcp_probe", "run", *report, "--", *server]
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("MCP_PROBE_") or "NATIVE" in name
        }
        client = Stdio(command, kept) if transport == "stdio" else Http(command, kept, port)
        try:
            truth = converse(client)
        finally:
            if client.process.poll() is None:
                code = client.close()
        if not told.exists():
            raise RuntimeError(f"no summary; exit {code}; {client.stderr[-500:]!r}")
        sees_arrivals = transport == "stdio" or has_tcp_info()
        found = judge(json.loads(told.read_text()), truth, loop, sees_arrivals)
        return found, (code, client.stderr.decode("utf-8", "replace"))


async def in_memory():
    """The same scene with client and server on one loop, where nothing can wait in front of the server."""
    import anyio

    import mcp_probe

    server = make_server()
    name, version = sdk_name()
    probe = mcp_probe.attach(server)
    if name == "fastmcp":
        from fastmcp import Client

        opened = Client(server)
    elif version.startswith("1."):
        from mcp.shared.memory import create_connected_server_and_client_session

        opened = create_connected_server_and_client_session(server._mcp_server)
    else:
        from mcp import Client

        opened = Client(server)
    answers = {}
    async with opened as client:

        async def one(id, tool, **arguments):
            answers[id] = (await client.call_tool(tool, arguments)).content[0].text

        for id, tool, arguments in WARM:
            await one(id, tool, **arguments)
        at = time.monotonic() + LEAD_S * SLOW
        async with anyio.create_task_group() as group:
            for n in range(VICTIMS):
                group.start_soon(lambda n=n: one(f"timed{n}", "timed", until=at + 0.1))
            group.start_soon(lambda: one("block", "block", at=at))
        for n in range(LOAD):
            await one(f"load{n}", "plus", a=3, b=3)
    summary = probe.snapshot().to_json()
    probe.detach()
    timed = [json.loads(answers[f"timed{n}"]) for n in range(VICTIMS)]
    return summary, scene_truth(json.loads(answers["block"]), timed, [])


# ---- the judgement ----


def judge(summary, truths, loop, sees_arrivals=True):
    """What the probe said beside what was so. ``faults`` is empty where all of it is true."""
    faults, waits, wide = [], {}, False
    truth, front_ms = truths
    by_name = {one["name"]: one for one in summary["operations"]}
    sees_steps = "steps" not in by_name.get("block", {}).get("unseen", ())
    if sees_steps == (loop == "unknown"):
        faults.append(f"on {loop} steps can{'not' if loop == 'unknown' else ''} be seen; the probe says otherwise")
    rows = {(row["victim"], row["blocker"]): row for row in summary["blocked_by"]}
    for victim, true_ms in truth.items():
        if not true_ms:
            continue
        row = rows.get((victim, "block"))
        lo, hi = (row["lo_ms"], row["hi_ms"]) if row else (None, None)
        waits[victim] = {"true_ms": round(true_ms, 1), "lo_ms": lo, "hi_ms": hi}
        waits[victim]["said"] = said = verdict_on(lo, hi, true_ms)
        if said not in right_verdicts(sees_steps, sees_arrivals or victim != "add"):
            wide |= said == "wide"
            faults.append(f"{victim} waited {true_ms:.0f} ms for block; the probe says {lo} to {hi}: {said}")
    if front_ms and sees_arrivals:
        lo, hi = queue_of(by_name.get("add"))
        said = verdict_on(lo, hi, front_ms)
        if said != "true":
            wide |= said == "wide"
            faults.append(f"add waited {front_ms:.0f} ms in front of the server; its queue is {lo} to {hi}: {said}")
    steps = [step for step in summary["slow_steps"] if step["tool"] == "block" and step["ms"] >= 900 * BLOCK_S]
    line = [(step["tool"], Path(step["file"] or "").name, step["line"]) for step in steps]
    true_line = [("block", Path(__file__).name, blocking_line())] if sees_steps else []
    if line != true_line:
        faults.append(f"the line is {true_line or 'not to be known'}; the probe says {line}")
    sent = {"plus": 1 + LOAD, "timed": VICTIMS, "add": VICTIMS if "add" in waits else 0}
    counted = {name: by_name.get(name, {}).get("count", 0) for name in sent}
    if counted != sent:
        faults.append(f"{sent} calls were sent; the probe counts {counted}")
    verdict = summary["verdict"]
    blames = [verdict["code"], verdict["subject"]]
    requested = ((by_name.get("allocate") or {}).get("memory") or {}).get("requested") or {}
    memory = requested.get("p50")
    if memory is not None and not ALLOCATED <= memory <= 1.1 * ALLOCATED:
        faults.append(f"allocate asked for {ALLOCATED} bytes; the probe says {memory}")
    return {
        "waits": waits,
        "line": line,
        "verdict": blames,
        "sentence": verdict["sentence"],
        "memory": memory,
        "counted": [counted, sent],
        "disabled": summary["probe"]["disabled_hooks"],
        "wide": wide,
        "faults": faults,
    }


def queue_of(row):
    """Milliseconds from the arrival of one operation's calls to their handlers, at least and at most."""
    budget = row["budget_ms"] if row else {}
    mean, dispatch = budget.get("queue_transport"), budget.get("queue_dispatch")
    if mean is None or dispatch is None:
        return None, None
    quality = row["quality"].get("queue_transport") or {}
    return tuple((quality.get(end, mean) + dispatch) * row["count"] for end in ("lo", "hi"))


def verdict_on(lo, hi, true_ms):
    """``true``, ``wide`` (the truth lies between ends too far apart), ``unseen`` (it says nothing), or ``wrong``."""
    if lo is None and hi is None:
        return "unseen"
    low, high = lo or 0.0, float("inf") if hi is None else hi
    allowed = max(OFF_MS, OFF_SHARE * true_ms)
    if abs(low - true_ms) <= allowed and abs(high - true_ms) <= allowed and high - low <= allowed:
        return "true"
    return "wide" if low - allowed <= true_ms <= high + allowed else "wrong"


def right_verdicts(sees_steps, sees_arrival):
    """An arrival that the kernel does not tell may be bounded, however widely."""
    if not sees_steps:
        return ("unseen",)
    return ("true",) if sees_arrival else ("true", "wide", "unseen")


def has_tcp_info():
    """Whether this kernel says of a socket when its last bytes came; qemu's `getsockopt` does not hand it on."""
    if not hasattr(socket, "TCP_INFO"):
        return False
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()) as sending, listening.accept()[0] as receiving:
            sending.sendall(b"x")
            receiving.recv(1)
            told = receiving.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return any(told[128:136])  # tcpi_bytes_received


def attempt(what):
    for _ in range(SCENES - 1):
        try:
            found = what()
        except SceneSpoiled:
            continue
        except Exception:  # noqa: BLE001 - told below, if it is there again
            break
        if not found["wide"]:  # bounds are right, but far apart where a thread was kept from its CPU: now and then
            return found
    try:
        return what()
    except Exception as exc:  # noqa: BLE001 - a transport that fails leaves the others to be asked
        return {"faults": [f"did not run: {type(exc).__name__}: {str(exc)[:500]}"]}


def is_noise(line):
    """Not what SDKs warn of in their own modules."""
    ours = "mcp_probe" in line or "never awaited" in line
    return line.startswith(("Traceback", "Exception ignored")) or ("Warning" in line and ours)


def wire(transport, loop):
    found, (code, stderr) = over_wire(transport, loop)
    if SLOW > 1 and "latest requests are lost" in stderr:  # at its exit a server waits half a second for the probe
        raise SceneSpoiled(stderr)
    if code not in (0, -signal.SIGTERM):
        found["faults"].append(f"the server ended with {code}")
    noise = [line for line in stderr.splitlines() if is_noise(line)]
    if noise:
        found["faults"].append(f"on the server's stderr: {noise[0]}")
    return found


def memory_cell(loop):
    import anyio

    return judge(*anyio.run(in_memory, **backend_of(loop)), loop)


def main():
    if sys.argv[1:2] == ["serve"]:
        return serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    import mcp_probe
    from mcp_probe import native

    loop = (sys.argv[1:] or ["asyncio"])[0]
    if sys.argv[2:]:
        os.environ["CELL_SDK"] = sys.argv[2]
    name, version = sdk_name()
    told = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "libc": "-".join(platform.libc_ver()),
        "sdk": [name, version],
        "mcp": metadata.version("mcp"),
        "loop": loop,
        "probe": str(Path(mcp_probe.__file__).parent),
        "native": native.state(),
        "transports": {},
    }
    told["transports"]["in memory"] = attempt(lambda: memory_cell(loop))
    told["transports"]["stdio"] = attempt(lambda: wire("stdio", loop))
    if http_app(make_server()) is None:
        told["transports"]["HTTP"] = {"absent": "this SDK has no streamable HTTP"}
    elif loop in ("trio",):
        told["transports"]["HTTP"] = {"absent": "uvicorn runs on asyncio and uvloop only"}
    else:
        told["transports"]["HTTP"] = attempt(lambda: wire("HTTP", loop))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
