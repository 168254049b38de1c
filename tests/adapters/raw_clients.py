"""Clients of one probed server, written by hand: stdio, streamable HTTP, SSE. They note between which two instants each
request was sent and when its answer had come, on a clock of their own."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LIMIT_S, LOOK_S = 120.0, 0.5
END_S = 20.0
"""How long a server on stdio may take to end by itself."""
PROBE = (sys.executable, "-m", "mcp_probe")
VERSION = "2025-06-18"
Start = Callable[[Sequence[str], Mapping[str, str], int], Any]
"""Arguments of `mcp-probe`, environment and the descriptor of stderr, to what is used of ``subprocess.Popen``."""


class RawClient:
    """Starts ``command`` under ``mcp-probe run``, or as it is if it is ``profiled`` by itself into ``$RECORDING``.

    Leaving it ends the server and reads its summary and recording. ``start`` starts `mcp-probe` with such arguments in
    another way than by a fresh interpreter.
    """

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        profiled: bool = False,
        start: Start | None = None,
    ) -> None:
        self.profiled = profiled
        self.summary_file, self.recording, self.waits = (
            folder / name for name in ("summary.json", "recording", "waits")
        )
        self.session: str | None = None  # of streamable HTTP
        self.sent: dict[str, float] = {}
        self.handed: dict[str, float] = {}  # when the system had all of its bytes
        self.answers: dict[str, tuple[float, dict[str, Any]]] = {}
        self.late_ms = 0.0  # the longest that this process, ready to run, did not: the machine was busy
        self._over = threading.Event()
        self._come = threading.Condition()
        run = ["run", "--json", str(self.summary_file), "--record", str(self.recording), "--", *command]
        self._stderr = (folder / "stderr").open("w+b")
        environment = {**environment, "RECORDING": str(self.recording), "WAITS": str(self.waits)}
        self.process: subprocess.Popen[bytes]
        if start is not None:
            self.process = start(run, environment, self._stderr.fileno())
        else:
            self.process = subprocess.Popen(
                command if self.profiled else [*PROBE, *run],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
            )

    def __enter__(self) -> Any:
        threading.Thread(target=self._look_at_the_clock, daemon=True).start()
        try:
            self.connect()
            self.ask(
                "hello",
                "initialize",
                protocolVersion=VERSION,
                capabilities={},
                clientInfo={"name": "raw", "version": "1"},
            )
            self.wait_for("hello")
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.close()
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self._stderr.seek(0)
            self.stderr = self._stderr.read().decode("utf-8", "replace")
            self._stderr.close()
        if self.profiled:
            report = [*PROBE, "report", str(self.recording), "--json", str(self.summary_file)]
            subprocess.run(report, check=True, capture_output=True)

    def _look_at_the_clock(self) -> None:
        while True:
            due = time.monotonic() + 0.005
            if self._over.wait(0.005):
                return
            self.late_ms = max(self.late_ms, (time.monotonic() - due) * 1e3)

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.summary_file.read_text("utf-8"))
        return found

    def ask(self, id: str, method: str, **params: Any) -> str:
        """Send a request, and return before it is answered."""
        self.sent[id] = time.monotonic()
        self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def call(self, id: str, tool: str, **arguments: Any) -> str:
        return self.ask(id, "tools/call", name=tool, arguments=arguments)

    def wait_for(self, *ids: str, within_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + within_s
        with self._come:
            while not self._come.wait_for(lambda: all(id in self.answers for id in ids), LOOK_S):
                ended = self.process.poll()
                if ended is not None or time.monotonic() > deadline:
                    why = "" if ended is None else f": its server has ended ({ended})"
                    raise AssertionError(f"no answer to {[id for id in ids if id not in self.answers]}{why}")

    def wait_until_it_waits(self) -> None:
        """Until its tool ``wait`` does, which makes a file."""
        deadline = time.monotonic() + LIMIT_S
        while not self.waits.exists():
            assert time.monotonic() < deadline, "the call of `wait` never came"
            time.sleep(0.005)

    def latency_ms(self, id: str) -> float:
        """What its user waited."""
        return (self.answers[id][0] - self.sent[id]) * 1e3

    def least_ms(self, id: str) -> float:
        """Of it what lies behind the sending: a thread of ours that has to wait for a processor sends late."""
        return (self.answers[id][0] - self.handed[id]) * 1e3

    def has_handed(self, message: Mapping[str, Any]) -> None:
        """All its bytes are the system's."""
        if "id" in message:
            self.handed[message["id"]] = time.monotonic()

    def note(self, line: bytes) -> None:
        """A message has come."""
        now = time.monotonic()
        message = json.loads(line)
        if "id" in message and "method" not in message:
            with self._come:
                self.answers.setdefault(message["id"], (now, message))
                self._come.notify_all()

    def connect(self) -> None: ...

    def post(self, message: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class StdioClient(RawClient):
    def connect(self) -> None:
        def read() -> None:
            with suppress(ValueError):  # closed meanwhile
                for line in self.process.stdout or ():
                    self.note(line)

        threading.Thread(target=read, daemon=True).start()

    def post(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        self.has_handed(message)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.terminate()  # as the SDK's clients do: mcp 1.6 goes on when its stdin has ended


class HttpClient(RawClient):
    """Each request on a connection and a thread of its own."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: Mapping[str, str],
        port: int,
        path: str,
        *,
        profiled: bool = False,
        start: Start | None = None,
    ) -> None:
        super().__init__(command, folder, environment, profiled=profiled, start=start)
        self.port, self.path = port, path
        self._threads: list[threading.Thread] = []

    def connect(self) -> None:
        threading.Thread(target=self._read_the_access_log, daemon=True).start()
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def _read_the_access_log(self) -> None:
        """A pipe that nobody reads is full after some 900 lines, and holds the server's loop up."""
        assert self.process.stdout is not None
        with suppress(ValueError):  # closed
            while self.process.stdout.read1(65536):  # type: ignore[attr-defined]
                pass

    def post(self, message: Mapping[str, Any]) -> None:
        thread = threading.Thread(target=self._exchange, args=(message,), daemon=True)
        thread.start()
        self._threads.append(thread)
        if self.session is None or "id" not in message:
            thread.join(LIMIT_S)

    def headers_of(self, message: Mapping[str, Any]) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if "hello" in self.answers:
            headers["mcp-protocol-version"] = VERSION
        return headers

    def _exchange(self, message: Mapping[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", self.path, json.dumps(message), self.headers_of(message))
        self.has_handed(message)
        response = connection.getresponse()
        self.session = response.getheader("mcp-session-id") or self.session
        for line in response.read().splitlines():
            if line.startswith((b"data: {", b"{")):
                self.note(line.removeprefix(b"data: "))
        connection.close()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT_S)
        self.process.send_signal(signal.SIGTERM)


class SseClient(HttpClient):
    """Requests by POST, answers on one stream of events."""

    def connect(self) -> None:
        super().connect()
        self.session = "its path"
        self._stream = http.client.HTTPConnection("127.0.0.1", self.port)
        self._stream.request("GET", self.path, headers={"accept": "text/event-stream"})
        self._response = response = self._stream.getresponse()
        found = threading.Event()

        def read() -> None:
            with suppress(ConnectionError):  # the server has ended meanwhile
                while line := response.readline():
                    if line.startswith(b"data: {"):
                        self.note(line.removeprefix(b"data: "))
                    elif line.startswith(b"data: "):
                        self.path = line.removeprefix(b"data: ").decode().strip()
                        found.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        assert found.wait(LIMIT_S)

    def _exchange(self, message: Mapping[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", self.path, json.dumps(message), {"content-type": "application/json"})
        self.has_handed(message)
        connection.getresponse().read()
        connection.close()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert self._stream.sock is not None
        self._stream.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(LIMIT_S)
        self._response.close()
        self._stream.close()
        self.process.send_signal(signal.SIGTERM)
