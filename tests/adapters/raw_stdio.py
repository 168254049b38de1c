"""A client of a stdio server that writes each line itself, at an instant that it notes: one write, one message."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from mcp_probe.clock import now_ns

ANSWER_S = 60.0


class RawClient:
    """``sent_ns``, ``written_ns``, ``answered_ns`` and ``answers`` by request id; ids are given by the caller."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.sent_ns: dict[int, int] = {}
        self.written_ns: dict[int, int] = {}
        self.answered_ns: dict[int, int] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        self._stdin = stdin
        self._answered = threading.Condition()
        self._reading = threading.Thread(target=self._read, args=(stdout,))
        self._reading.start()

    def send(self, method: str, params: Mapping[str, Any], number: int | None = None) -> None:
        """Write one message; a notification where it has no number."""
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
        line = json.dumps(message).encode() + b"\n"
        if number is not None:
            self.sent_ns[number] = now_ns()
        os.write(self._stdin.fileno(), line)
        if number is not None:
            self.written_ns[number] = now_ns()

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        """Write a tool call."""
        self.send("tools/call", {"name": tool, "arguments": arguments}, number)

    def wait(self, *numbers: int) -> None:
        """Until these are answered."""
        with self._answered:
            assert self._answered.wait_for(lambda: all(each in self.answered_ns for each in numbers), ANSWER_S)

    def total_ms(self, number: int) -> float:
        """From the write to the answer."""
        return (self.answered_ns[number] - self.sent_ns[number]) / 1e6

    def _read(self, stdout: IO[bytes]) -> None:
        for line in stdout:
            answer = json.loads(line)
            number = answer.get("id")
            with self._answered:
                self.answers[number], self.answered_ns[number] = answer, now_ns()
                self._answered.notify_all()

    def close(self) -> None:
        """The server gets its end of file, and its last answers are read."""
        self._stdin.close()
        self._reading.join(ANSWER_S)


@contextmanager
def raw_client(command: list[str], environment: Mapping[str, str]) -> Iterator[RawClient]:
    """A client of the server that ``command`` starts, past its initialization; the server has ended after the block."""
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}, bufsize=0
    )
    assert server.stdin is not None and server.stdout is not None
    client = RawClient(server.stdin, server.stdout)
    try:
        who = {"name": "raw", "version": "1"}
        client.send(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}, number := 1_000_000
        )
        client.wait(number)
        client.send("notifications/initialized", {})
        yield client
    finally:
        client.close()
        server.wait(ANSWER_S)
        server.stdout.close()
