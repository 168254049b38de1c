"""What the canary reads in pytest's output."""

from __future__ import annotations

import sys
from pathlib import Path

from tools import canary
from tools.canary import Broken, failures


def test_names_of_tests_are_read_with_the_values_in_them() -> None:
    said = [
        "FAILED tests/a.py::test_one - AssertionError: a - b",
        "FAILED tests/a.py::test_two[a b-c] - ValueError: [x] - y",
        "ERROR tests/b.py",
        "FAILED tests/a.py::test_three[1-2]",
        "1 passed",
    ]
    assert failures(said) == [
        Broken("tests/a.py::test_one", "AssertionError: a - b"),
        Broken("tests/a.py::test_two[a b-c]", "ValueError: [x] - y"),
        Broken("tests/b.py", ""),
        Broken("tests/a.py::test_three[1-2]", ""),
    ]


def test_a_run_that_ran_nothing_has_not_passed() -> None:
    broken, _ = canary.tested(Path(sys.executable), ["tests/nothing_here.py::test_x"])
    assert [one.test for one in broken] == ["tests/nothing_here.py::test_x"]
    assert "pytest ended with 4" in broken[0].why
