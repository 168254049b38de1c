"""Programs on ports of this machine, for as long as a test asks them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 120.0  # far above what any of it needs on a loaded machine
_PROXYLESS = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_built(name: str) -> bool:
    """Whether ``make`` has built this backend."""
    return (ROOT / ".tools" / "backends" / name).exists()


def binary(name: str) -> Path:
    """The backend that ``make`` built; skips the test where it is not there."""
    path = ROOT / ".tools" / "backends" / name
    if not is_built(name):
        pytest.skip(f"{name} is not built: run `make backends`, or `make .tools/backends/{name}` for it alone")
    return path


@contextmanager
def running(
    command: Sequence[str],
    *,
    log: Path,
    is_ready: Callable[[], object],
    environment: Mapping[str, str] | None = None,
    ends_with: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """``command``, from when ``is_ready`` gives something true until the block is left. Its output goes to ``log``."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    try:
        eventually(lambda: process.poll() is not None or is_ready())
        if process.poll() is not None:
            pytest.fail(f"{command[0]} ended with {process.returncode}:\n{log.read_text('utf-8')[-2000:]}")
        yield process
    finally:
        stop(process, ends_with)


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Ends a process of ours, and waits for its end."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def eventually(question: Callable[[], T], *, limit_s: float = LIMIT_S) -> T:
    """The first true answer; the last one where ``limit_s`` brought none, so that the caller's assert shows it."""
    deadline = time.monotonic() + limit_s
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as caller:
        caller.settimeout(1)
        return caller.connect_ex(("127.0.0.1", port)) == 0


def ask(url: str, body: bytes | None = None) -> bytes | None:
    """What the URL answers with, ``None`` where nobody listens yet or it does not have it.

    Raises: AssertionError with the answer where the question itself was refused.
    """
    try:
        with _PROXYLESS.open(urllib.request.Request(url, data=body), timeout=LIMIT_S) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as exc:
        if exc.code in (404, 503):
            return None
        raise AssertionError(f"{url}: {exc.code} {exc.read().decode('utf-8', 'replace')[:2000]}") from exc
    except (urllib.error.URLError, ConnectionError):
        return None


def ask_json(url: str) -> Any:
    """As :func:`ask`, decoded."""
    answer = ask(url)
    return None if answer is None else json.loads(answer)
