"""A real server with its client, and `mcp-probe attach` beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.ports import free_port

PROGRAM = Path(__file__).with_name("attached_server.py")
LIMIT_S = 90
"""Far above what a loaded machine needs."""


@dataclass
class Served:
    """A running server. ``errors`` is what it has written to stderr."""

    client: Client
    pid: int
    errors: Path

    async def ask(self, tool: str, **arguments: Any) -> str:
        """The text that ``tool`` answers with."""
        answer = await self.client.call_tool(tool, arguments)
        assert not answer.is_error, answer
        content: Any = answer.content[0]
        return str(content.text)


@asynccontextmanager
async def serving(
    python: Path | str, folder: Path, how: str = "stdio", loop: str = "asyncio", **variables: str
) -> AsyncIterator[Served]:
    """The server under ``python``, over stdio or HTTP, with a client of this process."""
    errors = folder / "server.stderr"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    with errors.open("w") as log:
        if how == "stdio":
            arguments = [str(PROGRAM), "stdio", loop]
            parameters = StdioServerParameters(command=str(python), args=arguments, env=environment)
            async with Client(stdio_client(parameters, errlog=log)) as client:
                yield await _served(client, errors)
            return
        port = free_port()
        command = [str(python), str(PROGRAM), str(port), loop]
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        try:
            await _listens(port, process)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                yield await _served(client, errors)
        finally:
            process.kill()
            process.wait()


async def _served(client: Client, errors: Path) -> Served:
    served = Served(client, 0, errors)
    served.pid = int(await served.ask("pid"))
    return served


async def _listens(port: int, process: subprocess.Popen[bytes]) -> None:
    with anyio.fail_after(LIMIT_S):
        while process.poll() is None:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.05)
            else:
                await stream.aclose()
                return
    raise AssertionError(f"the server ended with {process.returncode}")


class Command:
    """`mcp-probe attach` in a process of its own."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.told = ""
        assert process.stdout is not None and process.stderr is not None
        self._out = TextReceiveStream(process.stdout)
        self._errors = TextReceiveStream(process.stderr)

    async def until(self, words: str) -> None:
        """Wait until ``words`` stand in what it has told on stderr."""
        with anyio.fail_after(LIMIT_S):
            while words not in self.told:
                try:
                    self.told += await self._errors.receive()
                except anyio.EndOfStream:
                    raise AssertionError(f"{words!r} was never said, but: {self.told}") from None

    async def end(self, number: int | None = None) -> tuple[int, str]:
        """Its exit code and its stdout, after it was sent the signal ``number``."""
        if number is not None:
            self.process.send_signal(signal.Signals(number))
        out = ""
        with anyio.fail_after(LIMIT_S):
            async for text in self._out:
                out += text
            async for text in self._errors:
                self.told += text
            code = await self.process.wait()
        return code, out


def command_line(pid: int, *options: str) -> Sequence[str]:
    return [sys.executable, "-m", "mcp_probe", "attach", str(pid), *options]


@asynccontextmanager
async def attaching(pid: int, *options: str) -> AsyncIterator[Command]:
    """The command, from its start on; it is killed at the end if it still runs."""
    process = await anyio.open_process(command_line(pid, *options), stdin=subprocess.DEVNULL)
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def attach(pid: int, *options: str) -> tuple[int, str, str]:
    """The command, run to its end: exit code, stdout, stderr."""
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(command_line(pid, *options), check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
