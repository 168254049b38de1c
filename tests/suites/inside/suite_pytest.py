"""Pytest plugin: the probe in every process that runs tests, and each test's outcome in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import suite_watch  # type: ignore[import-not-found]

WATCH = pytest.StashKey[suite_watch.Watch]()
FOUND = pytest.StashKey[dict[str, dict[str, str]]]()
KEPT_LETTERS = 600


def _runs_tests(config: pytest.Config) -> bool:
    """Not the controller of pytest-xdist, which only collects what its workers report."""
    return hasattr(config, "workerinput") or not getattr(config.option, "dist", "no").startswith(("load", "each"))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = {}
    if _runs_tests(config):
        config.stash[WATCH] = suite_watch.Watch()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with item.config.stash[WATCH].test(item.nodeid):
        yield


class _Reports:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        elif report.failed and report.when != "call":
            outcome = "error"
        found = self._config.stash[FOUND].setdefault(report.nodeid, {"outcome": "passed", "why": ""})
        if outcome != "passed" and found["outcome"] in ("passed", "skipped"):
            why = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or str(report.longrepr)
            found.update(outcome=outcome, why=why[-KEPT_LETTERS:])


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Reports(session.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker is waited for until here; later it may be killed."""
    watch: Any = session.config.stash.get(WATCH, None)
    if watch is not None:
        watch.prove()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        with open(os.path.join(suite_watch.FOLDER, f"outcomes-{os.getpid()}.json"), "w") as file:
            json.dump(config.stash[FOUND], file)
