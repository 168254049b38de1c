"""Fixtures of every test: the guard against leaked probes, other SDKs' interpreters, the event loop."""

from __future__ import annotations

import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.guard import attached_now, detach_leaks, threads_that_stay

ROOT = Path(__file__).resolve().parent.parent

# How long an example takes says something of the machine, not of the code; and what is checked before a change goes in
# must not depend on luck: `pytest --hypothesis-profile=explore` looks for what these examples do not show.
_EXPLORE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", _EXPLORE)
settings.register_profile("suite", _EXPLORE, derandomize=True)
settings.load_profile("suite")

# Some of its values are constants of the modules of ours that happen to be loaded, which the tests before have decided.
_constants_of_ours = providers._get_local_constants
providers._get_local_constants = lambda: (
    providers._local_constants if settings().derandomize else _constants_of_ours()  # none; or all
)


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """A background job ignores these, and so would every command that a test starts and signals.

    With a handler that does nothing this process still ignores them, and what it starts does not.
    """
    for name in ("SIGINT", "SIGQUIT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def time_to_end() -> Iterator[None]:
    """The SDK's client ends a server 2 s after its stdin, and its recording with it: a busy machine needs longer.

    So does our own thread, which a starved machine has stopped for longer than users would wait for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_probe.collector.DETACH_BUDGET_S", 20.0)
        patch.setattr("mcp_probe.collector.DETACH_PATIENCE_S", 10.0)
        patch.setattr("mcp_probe.live.channel.STOP_S", 20.0)
        patch.setattr("mcp_probe.live.flight.STOP_S", 20.0)
        patch.setattr("mcp_probe.top.servers.HELLO_S", 30.0)
        if "mcp.client.stdio" in sys.modules:
            patch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 30.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_allocates_outside() -> Iterator[None]:
    """Other tests, and what they import, load numpy: then no figure of memory would be exact any more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_probe.capture.outside_memory.LIBRARIES", ())
        patch.setattr("mcp_probe.capture.outside_memory.WAYS", ())
        yield


@pytest.fixture(autouse=True)
def nothing_attached() -> Iterator[None]:
    """Fails a test that starts with, or leaves behind, an attached probe, and one whose probe's threads stay."""
    if sentence := detach_leaks(attached_now()):
        pytest.fail(f"before the test: {sentence}")
    yield
    if sentence := detach_leaks(attached_now()):
        pytest.fail(f"after the test: {sentence}")
    if sentence := threads_that_stay():
        pytest.fail(f"after the test: {sentence}")


@pytest.fixture
def anyio_backend() -> object:
    """Async tests run on asyncio; for others parametrize ``anyio_backend``, e.g. with ``tests.loops.LOOPS``."""
    return "asyncio"


@pytest.fixture(scope="session")
def env_python() -> Callable[[str], Path]:
    """Interpreter of a locked environment that does not hold mcp_probe, e.g. ``env_python("field-git")``.

    The names are those of ``requirements/*.txt``; console scripts stand beside the interpreter.
    """

    def find(name: str) -> Path:
        python = ROOT / ".envs" / name / "bin" / "python"
        if not (ROOT / "requirements" / f"{name}.txt").exists():
            pytest.fail(f"No environment is called {name!r}: requirements/{name}.txt does not exist.")
        if not (python.parent.parent / ".installed").exists():
            pytest.fail(f"The environment .envs/{name} is missing: run `make envs`.")
        return python

    return find


@pytest.fixture(scope="session")
def lent_opentelemetry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but OpenTelemetry, which is pure Python, for interpreters that have none."""
    lent = tmp_path_factory.mktemp("opentelemetry-only")
    for path in Path(sysconfig.get_paths()["purelib"]).glob("opentelemetry*"):
        (lent / path.name).symlink_to(path)
    return lent
