"""The pytest plugin: the fixture ``mcp_profile``, the marker ``mcp_budget``, the report's rows where a test fails.

pytest loads this module in every run of an environment that has the package, so it imports nothing but pytest. The
rest is loaded by the first test that uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcp_probe.testing.profile import Profile

MARKER = "mcp_budget"
FIXTURE = "mcp_profile"
_PROFILES = pytest.StashKey[list["Profile"]]()
_BUDGET = pytest.StashKey[Any]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(retained='1kB', step_cpu='20ms', max_connections=2, max_tasks=8, max_awaits_under_lock=0, "
        "findings='blocking-call', operation='search'): what calls of the test may cost, as mcp_profile measures it",
    )


@pytest.fixture
def mcp_profile(request: pytest.FixtureRequest) -> Iterator[Callable[..., Profile]]:
    """``mcp_profile(server)`` profiles a server object; ``mcp_profile(command=[…])`` one that a client starts.

    Both give a :class:`mcp_probe.testing.Profile`. Nothing is attached before the call, nor after the test.
    """
    from mcp_probe.testing.start import profile_command, profile_server

    profiles = request.node.stash.setdefault(_PROFILES, [])
    budget = request.node.stash.get(_BUDGET, None)

    def profile(server: Any = None, *, command: Any = None, **options: Any) -> Profile:
        if (server is None) == (command is None):
            from mcp_probe.errors import OptionError

            raise OptionError("mcp_profile takes a server object, or command=[…]: one of the two.")
        if budget is not None and budget.needs_hunt and command is not None:
            options.setdefault("memory", "leaks")
        made = profile_command(command, **options) if command is not None else profile_server(server, **options)
        profiles.append(made)
        return made

    yield profile
    for made in profiles:
        made.clean()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Read the marker before the test runs: what it says may be wrong."""
    marks = list(item.iter_markers(MARKER))
    if not marks:
        return
    from mcp_probe.errors import OptionError
    from mcp_probe.testing.budget import parse_budget

    given: dict[str, Any] = {}
    for mark in reversed(marks):  # the closest last: it wins
        given.update(mark.kwargs)
    try:
        item.stash[_BUDGET] = parse_budget(next((mark.args for mark in marks if mark.args), ()), given)
    except OptionError as exc:
        pytest.fail(str(exc), pytrace=False)
    if FIXTURE not in getattr(item, "fixturenames", ()):
        pytest.fail(
            f"{MARKER} is about what the fixture {FIXTURE} measures, and {item.name} does not use it. "
            f"Take {FIXTURE} as an argument, and profile the server: {FIXTURE}(server).",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the test has passed: does it keep its budget?"""
    result = yield
    budget = item.stash.get(_BUDGET, None)
    if budget is not None:
        profiles = item.stash.get(_PROFILES, [])
        problems = [sentence for profile in profiles for sentence in budget.problems(profile)]
        if not profiles:
            problems = [f"Nothing was profiled: call {FIXTURE}(server) in the test."]
        if problems:
            pytest.fail("mcp_budget is not kept:\n" + "\n".join(f"  {each}" for each in problems), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that fails shows the report's rows of what it profiled."""
    report = yield
    if report.failed and call.when == "call":
        for profile in item.stash.get(_PROFILES, []):
            report.sections.append(("mcp_probe", _rows(profile)))
    return report


def _rows(profile: Profile) -> str:
    """Never raises: the test's own failure is what counts."""
    try:
        return profile.report()
    except Exception as exc:  # noqa: BLE001
        return f"There is no report: {exc}"
