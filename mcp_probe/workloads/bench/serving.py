"""Bundled servers in processes of their own, under the probe, with a client connected; and what the probe saw.

The client marks its :class:`Phases`, so that afterwards each row has the readings of exactly its own requests.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import anyio
from mcp.client import Client

from mcp_probe.aggregate.explain import explain, what_grew
from mcp_probe.errors import LaunchError, RecordingError
from mcp_probe.model import Summary
from mcp_probe.workloads.bench.phases import Phases
from mcp_probe.workloads.bench.shapes import Why
from mcp_probe.workloads.client import LoadSession, stdio_client_session

T = TypeVar("T")

Transport = Literal["stdio", "sse", "json"]
Mode = Literal["auto", "legacy"]
START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


class ProfiledServer(Phases):
    """A running server. ``session`` is a connected client (not with ``connect=False``), ``url`` is set for HTTP.

    After the ``async with`` block :meth:`seen`, :meth:`summary` and :meth:`why` answer; with ``probe=False`` they
    raise :class:`LaunchError`.
    """

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.url = url
        self._session: LoadSession | None = None

    @property
    def session(self) -> LoadSession:
        """The connected client."""
        if self._session is None:
            raise LaunchError("This server was started without a client; connect one with `connect()`.")
        return self._session

    @asynccontextmanager
    async def connect(
        self, mode: Mode = "auto", options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[LoadSession]:
        """One more client session, HTTP servers only; ``options`` are more of the SDK's client: its callbacks."""
        if self.url is None:
            raise LaunchError("A stdio server has one client only.")
        async with Client(
            self.url, mode=mode, read_timeout_seconds=START_LIMIT_S, cache=None, **(options or {})
        ) as client:
            await client.list_tools()
            yield LoadSession(client)

    def summary(self, phase: str | None = None) -> Summary:
        """As :meth:`seen`, the summary alone."""
        return self.seen(phase).summary

    def why(self, phase: str | None = None) -> str:
        """One sentence: where the time of the requests of ``phase`` went."""
        return explain(self.seen(phase))

    def grew(self, quick: ProfiledServer, phase: str, operation: str | None = None) -> Why:
        """What this server's requests of ``phase`` took longer for than the other's; its own :meth:`why` if nothing."""
        return lambda: what_grew(quick.seen(phase), self.seen(phase), operation) or explain(self.seen(phase), operation)

    def grown(self, quick: str, slow: str) -> Why:
        """What requests of ``slow`` took longer for than those of ``quick``; what held them up if nothing."""
        return lambda: what_grew(self.seen(quick), self.seen(slow)) or explain(self.seen(slow))

    def later(self, phase: str | None = None, operation: str | None = None) -> Why:
        """:meth:`why` for a row that is handed in while the server runs; of one operation's requests only."""
        return lambda: explain(self.seen(phase), operation)


@asynccontextmanager
async def profiled_server(
    module: str,
    arguments: Sequence[str] = (),
    *,
    transport: Transport = "stdio",
    probe: bool = True,
    mode: Mode = "auto",
    connect: bool = True,
    options: Mapping[str, Any] | None = None,
) -> AsyncIterator[ProfiledServer]:
    """``python -m module arguments`` under ``mcp-probe run``, with a client; ends it and reads its recording.

    For HTTP the module must serve with :func:`mcp_probe.workloads.servers.serving.serve`, which understands
    ``--http sse|json --port-file FILE``. ``probe=False`` runs it bare. ``options`` are
    the client's.

    Raises:
        LaunchError: it did not start, or not in time; says what it wrote to stderr.
        RecordingError: it left no readable recording.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
        port_file = Path(folder, "port")
        http = [] if transport == "stdio" else ["--http", transport, "--port-file", str(port_file)]
        plain = [sys.executable, "-m", module, *arguments, *http]
        command = under_probe(plain, Path(folder)) if probe else plain
        with Path(folder, "stderr.txt").open("w+", encoding="utf-8", errors="replace") as stderr:
            server: ProfiledServer | None = None
            try:
                async with AsyncExitStack() as stack:
                    if transport == "stdio":
                        server = ProfiledServer(None)
                        try:
                            server._session = await stack.enter_async_context(
                                stdio_client_session(command, mode=mode, stderr=stderr, options=options)
                            )
                        except Exception as exc:
                            raise LaunchError(failed(module, exc, stderr)) from exc
                    else:
                        process = await stack.enter_async_context(_process(command, stderr))
                        server = ProfiledServer(await _url(port_file, process, module, stderr))
                        if connect:
                            server._session = await stack.enter_async_context(server.connect(mode, options))
                    yield server
            except BaseException:
                if server is not None and probe:
                    with suppress(RecordingError):  # the rows of an interrupted run keep what readings there are
                        server.take_in(recording_in(Path(folder)))
                raise
        if probe:
            server.take_in(recording_in(Path(folder)))


@asynccontextmanager
async def side_by_side(contexts: Sequence[AbstractAsyncContextManager[T]]) -> AsyncIterator[list[T]]:
    """Enters all of them at once, and leaves them so: starting a server is mostly waiting for its imports.

    Each lives in a task of its own: a transport must be left by the task that entered it.

    Raises: what the first of those that failed raised, when the others have been left.
    """
    over = asyncio.Event()
    entered: list[asyncio.Future[T]] = [asyncio.get_running_loop().create_future() for _ in contexts]
    lives = [
        asyncio.create_task(hold(context, future, over)) for context, future in zip(contexts, entered, strict=True)
    ]
    try:
        await asyncio.wait(entered)
        yield [future.result() for future in entered]
    except BaseException:
        over.set()
        await asyncio.gather(*lives, return_exceptions=True)  # what went wrong first is what is told
        raise
    over.set()
    await asyncio.gather(*lives)


async def hold(context: AbstractAsyncContextManager[T], entered: asyncio.Future[T], over: asyncio.Event) -> None:
    """Stays in ``context`` until ``over``; ``entered`` gets its value, or what entering it raised.

    Nobody may be waiting for ``entered`` any more: who did was cancelled, and will set ``over``.
    """
    try:
        async with context as value:
            if not entered.cancelled():
                entered.set_result(value)
            await over.wait()
    except BaseException as exc:
        if entered.done():
            raise
        entered.set_exception(exc)
        if not isinstance(exc, Exception):
            raise


def under_probe(command: Sequence[str], folder: Path) -> list[str]:
    """The command line that runs ``command`` under the probe and leaves :func:`recording_in` ``folder``."""
    report = str(folder / "report.txt")
    options = ["--record", str(recording_in(folder)), "--output", report]
    return [sys.executable, "-m", "mcp_probe", "run", *options, "--", *command]


def recording_in(folder: Path) -> Path:
    """Where :func:`under_probe` records to."""
    return folder / "recording.jsonl"


def failed(module: str, exc: Exception, stderr: TextIO) -> str:
    """Why ``module`` did not start, and the last that it wrote."""
    stderr.seek(0)
    said = " ".join(stderr.read().split())[-500:] or "nothing"
    return f"The server {module} did not start ({type(exc).__name__}: {exc}); on stderr it said: {said}."


@asynccontextmanager
async def _process(command: Sequence[str], stderr: TextIO) -> AsyncIterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            with anyio.move_on_after(STOP_LIMIT_S):
                while process.poll() is None:
                    await anyio.sleep(0.01)
            if process.poll() is None:
                process.kill()
                process.wait()


async def _url(port_file: Path, process: subprocess.Popen[bytes], module: str, stderr: TextIO) -> str:
    try:
        with anyio.fail_after(START_LIMIT_S):
            while not port_file.exists():
                if process.poll() is not None:
                    raise LaunchError(f"it ended with status {process.returncode}")
                await anyio.sleep(0.01)
    except (TimeoutError, LaunchError) as exc:
        raise LaunchError(failed(module, exc, stderr)) from exc
    return f"http://127.0.0.1:{port_file.read_text()}/mcp"
