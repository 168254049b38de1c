"""Servers behind the threaded client and the facade of document 001; and what a probe sees on the client's side."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import anyio

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.session import Probe
from mcp_probe.workloads.bench.serving import ProfiledServer, failed, recording_in, under_probe
from mcp_probe.workloads.facade import ThreadedClient

P = ParamSpec("P")
T = TypeVar("T")


class ThreadedProvider(ProfiledServer):
    """A stdio server whose only client is the threaded one."""

    def __init__(self, client: ThreadedClient) -> None:
        super().__init__(None)
        self.client = client


@asynccontextmanager
async def threaded_provider(
    module: str,
    arguments: Sequence[str] = (),
    *,
    probe: bool = True,
    python: Sequence[str] = (sys.executable, "-m"),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[ThreadedProvider]:
    """``python -m module arguments`` and a threaded client of it. Raises: LaunchError where it does not start.

    ``python``: what runs ``module``; another interpreter, or without ``-m`` where that is a file.
    """
    with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as place:
        folder = Path(place)
        command = [*python, module, *arguments]
        if probe:
            command = under_probe(command, folder)
        with (folder / "stderr.txt").open("w+", encoding="utf-8", errors="replace") as stderr:
            try:
                client = await anyio.to_thread.run_sync(
                    partial(ThreadedClient, command, environment=environment, stderr=stderr)
                )
            except LaunchError as exc:
                raise LaunchError(failed(module, exc, stderr)) from exc
            provider = ThreadedProvider(client)
            try:
                yield provider
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(client.close)
        if probe:
            provider.take_in(recording_in(folder))


class Followed:
    """Calls of this process that a probe follows."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seen: Seen | None = None

    def follow(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """``function``, every call of which is a row of the probe's."""
        return self._probe.profile(function)

    def end(self, recording: Path) -> None:
        """The probe is detached; from now on its readings can be asked for."""
        self._seen = Seen.of(read_recording(recording))

    @property
    def seen(self) -> Seen:
        """What was seen. Raises: LaunchError while the block still runs."""
        if self._seen is None:
            raise LaunchError("There are no readings yet: the calls are still being followed.")
        return self._seen

    def why(self) -> str:
        """One sentence from the readings."""
        return explain(self.seen)


@contextmanager
def followed() -> Iterator[Followed]:
    """A probe on this process, for as long as the block runs: for rounds that nobody times."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
        recording = Path(folder, "recording.jsonl")
        probe = Probe(telemetry="off", record=str(recording))
        calls = Followed(probe)
        try:
            yield calls
        finally:
            probe.detach()
        calls.end(recording)
