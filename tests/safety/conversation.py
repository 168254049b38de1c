"""A raw stdio client: writes given bytes, waits for given answers, knows nothing of the SDK."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 120.0  # far above what a loaded machine needs for any one answer

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Conversation:
    """One server process and what it has written so far. Use as a context manager; leaving it waits for the exit."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.lines: list[bytes] = []
        self.stderr = b""
        self.exit_code: int | None = None
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
        environment["PYTHONPATH"] = str(ROOT)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**environment, **(env or {})},
        )
        self._threads = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the server's stdin and waits for its end; kills it where it does not come."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self.exit_code = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(LIMIT_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        while (line := self._next(0)) is not None:
            self.lines.append(line)

    def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Writes messages in one go; bytes as they are, without a newline added."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(one if isinstance(one, bytes) else encode(one) for one in messages))
        self._process.stdin.flush()

    def wait_for(self, *ids: Any) -> None:
        """Waits until each of ``ids`` has been answered (answers seen before count)."""
        missing = {json.dumps(one) for one in ids} - {key_of(line) for line in self.lines}
        while missing:
            missing.discard(self._take())

    def wait_for_method(self, method: str) -> dict[str, Any]:
        """Waits for the next message from the server with this method, and returns it."""
        while True:
            self._take()
            message: dict[str, Any] = json.loads(self.lines[-1])
            if message.get("method") == method:
                return message

    def _take(self) -> str:
        line = self._next(LIMIT_S)
        if line is None:
            raise AssertionError(f"the server's stdout ended; its stderr: {self.stderr.decode('utf-8', 'replace')}")
        self.lines.append(line)
        return key_of(line)

    def _next(self, timeout: float) -> bytes | None:
        try:
            return self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
        except queue.Empty:
            if timeout:
                raise AssertionError(
                    f"no further line within {timeout} s; the last: {self.lines[-1:]}; "
                    f"stderr: {self.stderr.decode('utf-8', 'replace')}"
                ) from None
            return None

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr += line


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def key_of(line: bytes) -> str:
    """The id that a line answers, as JSON; for anything else what it is."""
    message = json.loads(line)
    if "method" in message:
        return f"{message['method']} from the server"
    return json.dumps(message.get("id"))


def request(id: Any, method: str, *, modern: bool = False, **params: Any) -> dict[str, Any]:
    """A request; ``modern`` ones carry the 2026-07-28 envelope."""
    if modern:
        params["_meta"] = {**META, **params.get("_meta", {})}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params:
        message["params"] = params
    return message


def call(id: Any, tool: str, *, modern: bool = False, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
    """A tool call."""
    extra = {"_meta": dict(meta)} if meta else {}
    return request(id, "tools/call", modern=modern, name=tool, arguments=arguments, **extra)


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialize(id: Any = 0, **capabilities: Any) -> dict[str, Any]:
    """The handshake's request."""
    return request(
        id,
        "initialize",
        protocolVersion="2025-11-25",
        capabilities=capabilities,
        clientInfo={"name": "raw", "version": "1"},
    )


INITIALIZED = notification("notifications/initialized")


def python(program: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """The command of one of the programs beside this module."""
    return [interpreter, str(Path(__file__).with_name(program)), *arguments]
