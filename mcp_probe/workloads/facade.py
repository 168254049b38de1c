"""The client that document 001 measured, as it described it: threads, raw JSON, and a pool in front of everything.

A reader thread hands each answer to the thread that waits for it; every call of the facade goes through
``run_in_executor`` of a pool whose size is the number of calls that can be in flight. No validation, no SDK: what
it saves over the SDK's client is part of what that document compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitedTooLong
from typing import IO, Any

from mcp_probe.errors import LaunchError

PROTOCOL_VERSION = "2025-06-18"


class ThreadedClient:
    """One stdio server and the thread that reads its answers. Its calls block; call them from any thread.

    Raises: LaunchError where the server does not start, or ends before it has answered.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stderr: IO[Any] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pending: dict[int, Future[dict[str, Any]]] = {}
        self._next = 0
        self._over: str | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
            )
        except OSError as exc:
            raise LaunchError(f"{command[0]} could not be started: {exc.strerror}.") from exc
        self._reader = threading.Thread(target=self._read, name="facade-reader", daemon=True)
        self._reader.start()
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one tool call. Raises: LaunchError, also for an answer that is an error or too late."""
        return self._request("tools/call", {"name": tool, "arguments": dict(arguments)})

    def close(self) -> None:
        """Closes the server's stdin and waits for its end; kills it where it does not come within 10 s."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _shake_hands(self) -> None:
        about = {"name": "mcp-probe facade", "version": "1"}
        self._request("initialize", {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": about})
        with self._lock:
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._over is not None:
                raise LaunchError(self._over)
            self._next += 1
            number = self._next
            self._pending[number] = answer
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        try:
            message = answer.result(self._timeout_s)
        except WaitedTooLong as exc:
            with self._lock:
                self._pending.pop(number, None)
            raise LaunchError(f"{method} was not answered within {self._timeout_s:g} s.") from exc
        if "error" in message:
            raise LaunchError(f"{method} failed: {message['error'].get('message', message['error'])}")
        result: dict[str, Any] = message["result"]
        if result.get("isError"):
            raise LaunchError(f"{parameters.get('name', method)} failed: {result.get('content')}")
        return result

    def _send(self, message: dict[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError) as exc:
            raise LaunchError(f"The server no longer reads: {exc}.") from exc

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            for line in stdout:
                message = json.loads(line)
                with self._lock:
                    answer = self._pending.pop(message["id"], None) if "id" in message else None
                if answer is not None:
                    answer.set_result(message)
            why = "The server ended before it had answered."
        except (OSError, ValueError) as exc:
            why = f"The server's answers cannot be read: {exc}."
        with self._lock:
            self._over = why
            left, self._pending = list(self._pending.values()), {}
        for answer in left:
            answer.set_exception(LaunchError(why))


class Facade:
    """Asynchronous calls through a pool of ``workers`` threads: never more than that are in flight.

    ``client`` may be anything with a blocking ``call``.
    """

    def __init__(self, client: ThreadedClient, workers: int) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="facade")

    async def invoke(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call; waits for a thread of the pool, then for the answer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._client.call, tool, arguments)

    def close(self) -> None:
        """Ends the threads; the client stays open."""
        self._pool.shutdown(wait=True)
