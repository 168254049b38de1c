"""Whatever stands for stdin: the server answers as without a probe, and the object is left as it was."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

import mcp_probe
from tests.kept import keep

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
MESSAGES: list[dict[str, Any]] = [
    {"id": 1, "method": "initialize", "params": HELLO},
    {"method": "notifications/initialized"},
    *({"id": n, "method": "tools/call", "params": {"name": "add", "arguments": {"a": n, "b": 1}}} for n in range(2, 6)),
]
SENT = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in MESSAGES)


class Answers(io.BytesIO):
    """Stands for stdout; ``all`` is set once everything was answered: a server drops what it does when stdin ends."""

    def __init__(self) -> None:
        super().__init__()
        self.all = threading.Event()

    def write(self, data: Any) -> int:
        size = super().write(data)
        if self.getvalue().count(b"\n") == 5:
            self.all.set()
        return size


class OnlyRead:
    """No ``read1``: ``io.TextIOWrapper`` calls ``read`` then."""

    closed = False

    def __init__(self, answers: Answers) -> None:
        self._inner = io.BytesIO(SENT)
        self._answers = answers

    def read(self, size: int = -1) -> Any:
        chunk = self._inner.read(min(size, 100))
        if not chunk:
            self._answers.all.wait(60)
        return chunk

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    seekable = writable

    def flush(self) -> None: ...
    def close(self) -> None: ...


class InBytearrays(OnlyRead):
    def read(self, size: int = -1) -> Any:
        return bytearray(super().read(size))


class Read1(OnlyRead):
    def read1(self, size: int = -1) -> Any:
        return self.read(size)


class Slots:
    """Allows no attribute of ours."""

    __slots__ = ("_inner",)

    closed = False

    def __init__(self, answers: Answers) -> None:
        self._inner = OnlyRead(answers)

    def read1(self, size: int = -1) -> Any:
        return self._inner.read(size)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    seekable = writable

    def flush(self) -> None: ...
    def close(self) -> None: ...


class Proxy:
    """Hands everything on, what is set on it included."""

    def __init__(self, inner: Any) -> None:
        vars(self)["_inner"] = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)


class Raw(io.RawIOBase):
    def __init__(self, answers: Answers) -> None:
        self._data = OnlyRead(answers)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._data.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def when_answered(answers: Answers, stack: ExitStack, close: Callable[[], None]) -> None:
    def wait() -> None:
        answers.all.wait(60)
        close()

    thread = threading.Thread(target=wait)
    thread.start()
    stack.callback(thread.join)


def pipe(answers: Answers, stack: ExitStack) -> io.FileIO:
    reading, writing = os.pipe()
    os.write(writing, SENT)
    when_answered(answers, stack, lambda: os.close(writing))
    return stack.enter_context(io.FileIO(reading))


def buffered(answers: Answers, stack: ExitStack) -> io.BufferedReader:
    return stack.enter_context(io.BufferedReader(pipe(answers, stack)))


def made_from_socket(answers: Answers, stack: ExitStack) -> Any:
    ours, theirs = socket.socketpair()
    theirs.sendall(SENT)
    when_answered(answers, stack, theirs.close)
    stack.callback(ours.close)
    return stack.enter_context(ours.makefile("rb"))


STDIN: dict[str, tuple[Callable[[Answers, ExitStack], Any], bool]] = {
    "buffered": (buffered, True),
    "raw file": (pipe, True),
    "raw of its own": (lambda answers, stack: Raw(answers), True),
    "socket": (made_from_socket, True),
    "only read": (lambda answers, stack: OnlyRead(answers), True),
    "read1": (lambda answers, stack: Read1(answers), True),
    "bytearrays": (lambda answers, stack: InBytearrays(answers), True),
    "proxy": (lambda answers, stack: Proxy(buffered(answers, stack)), True),
    "proxy of what only reads": (lambda answers, stack: Proxy(OnlyRead(answers)), True),
    "slots": (lambda answers, stack: Slots(answers), False),
}


def serve(
    monkeypatch: pytest.MonkeyPatch, stdin: Any, written: Answers, *, probed: bool
) -> tuple[list[Any], Any, dict[str, str]]:
    server = MCPServer("stdin", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    probe = mcp_probe.attach(server) if probed else None
    kept = None if probe is None else keep(probe)

    async def run() -> None:
        with anyio.fail_after(60):
            await server.run_stdio_async()

    try:
        anyio.run(run)
    finally:
        hooks = {} if probe is None else dict(probe._hub.hooks)
        if probe is not None:
            probe.detach()
        monkeypatch.undo()
    answers = [json.loads(line) for line in written.getvalue().splitlines()]
    return sorted(answers, key=lambda answer: int(answer["id"])), kept, hooks


@pytest.mark.parametrize("kind", STDIN)
def test_server_answers_whatever_its_stdin_is(kind: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    make, seen = STDIN[kind]
    answers_of_bare, answers_of_probed = Answers(), Answers()
    bare, _, _ = serve(monkeypatch, make(answers_of_bare, opened), answers_of_bare, probed=False)
    stdin = make(answers_of_probed, opened)
    own = dict(vars(stdin)) if hasattr(stdin, "__dict__") else None
    answers, kept, hooks = serve(monkeypatch, stdin, answers_of_probed, probed=True)
    assert [answer["id"] for answer in bare] == [1, 2, 3, 4, 5]
    assert answers == bare
    if own is not None:
        assert vars(stdin).keys() == own.keys()
    assert not any("disabled" in state for state in hooks.values()), hooks
    assert ("stdio transport: reads" in hooks) is not seen
    records = kept.requests("add")
    assert len(records) == 4
    assert {record.budget.queue_transport is not None for record in records} == {seen}


def test_a_stdin_that_fails_fails_as_without_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(OnlyRead):
        def read(self, size: int = -1) -> Any:
            raise OSError("its own")

    def failed(*, probed: bool) -> list[str]:
        answers = Answers()
        with pytest.raises(BaseException) as caught:
            serve(monkeypatch, Broken(answers), answers, probed=probed)
        found: list[str] = []
        exc: Any = caught.value
        while isinstance(exc, BaseException):
            found.append(repr(exc))
            exc = exc.exceptions[0] if hasattr(exc, "exceptions") else None
        return found

    assert failed(probed=True) == failed(probed=False)
