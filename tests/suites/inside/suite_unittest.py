"""``python -m suite_unittest MODULE...``: unittest modules with the probe, each test's outcome in a file."""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
from typing import Any

import suite_watch  # type: ignore[import-not-found]

KEPT_LETTERS = 600


class Outcomes(unittest.TestResult):
    """One outcome a test; a failed subtest fails its test."""

    def __init__(self, watch: suite_watch.Watch) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str]] = {}
        self._watch = watch
        self._around: Any = None

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        print(test.id(), file=sys.stderr, flush=True)
        self.found[test.id()] = {"outcome": "passed", "why": ""}
        self._around = self._watch.test(test.id())
        self._around.__enter__()

    def stopTest(self, test: unittest.TestCase) -> None:
        self._around.__exit__(None, None, None)
        super().stopTest(test)

    def _note(self, test: Any, outcome: str, why: str) -> None:
        self.found[test.id()] = {"outcome": outcome, "why": why[-KEPT_LETTERS:]}

    def addError(self, test: Any, err: Any) -> None:
        self._note(test, "error", "".join(traceback.format_exception(*err)))

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(test, "failed", "".join(traceback.format_exception(*err)))

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._note(test, "xfailed", "")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "xpassed", "")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._note(test, "failed", f"{subtest}: " + "".join(traceback.format_exception(*err)))


def main(modules: list[str]) -> None:
    from test import support  # type: ignore[import-not-found]

    support.use_resources = ["network", "cpu", "subprocess"]
    watch = suite_watch.Watch()
    outcomes = Outcomes(watch)
    try:
        for module in modules:
            try:
                unittest.defaultTestLoader.loadTestsFromName(module).run(outcomes)
            except unittest.SkipTest as reason:
                outcomes.found[module] = {"outcome": "skipped", "why": str(reason)}
    finally:
        with open(os.path.join(suite_watch.FOLDER, f"outcomes-{os.getpid()}.json"), "w") as file:
            json.dump(outcomes.found, file)
        watch.prove()


if __name__ == "__main__":
    main(sys.argv[1:])
