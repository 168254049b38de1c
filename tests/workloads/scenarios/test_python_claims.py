"""What is said of two versions, and what cannot be said, whatever was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.explain import Seen
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Check
from mcp_probe.workloads.scenarios.interpreters import Interpreter
from mcp_probe.workloads.scenarios.python_claims import MEASURES, Arm, claims
from tests.frames import MS, SECOND, make_header, make_request

FLOORS = dict.fromkeys(MEASURES, 1.01)


class Told(ProfiledServer):
    """A server whose readings are made."""

    def __init__(self, version: str, calls: int) -> None:
        super().__init__(None)
        self._header = make_header(python=version)
        self._calls = calls

    def seen(self, phase: str | None = None) -> Seen:
        name = "compute" if phase == "computing" else "add"
        numbers = range(self._calls)
        return Seen.of([self._header, *(make_request(n, arrival_ns=n * SECOND, busy=MS, name=name) for n in numbers)])


def arm(minor: int, *, options: tuple[str, ...] = ("-O3",), scale: float = 1.0, **given: Any) -> Arm:
    one = Interpreter(Path(f"/opt/{minor}"), (3, minor, 1), "2.3.0", "GCC 12.2.0", options, label=f"CPython 3.{minor}")
    figures = {name: [100.0 / scale if name == "per_s" else 100.0 * scale] * 6 for name in MEASURES}
    said = {
        "python": one.version,
        "modules": 600,
        "uncompiled": 0,
        "blocks": 300_000,
        "packages": {"mcp": "2.3.0", "anyio": "4.16.0"},
    }
    values: dict[str, Any] = {"measures": figures, "said": said, "calls": 40, "used_cores": [1.0]}
    return Arm(one, Told(one.version, 5), 15, **{**values, **given})


def checks(*arms: Arm) -> dict[str, Check]:
    bench = Bench(quick=True)
    claims(bench, arms, FLOORS)
    return {check.claim: check for check in bench.outcome().checks}


def test_all_is_said_of_versions_that_were_built_alike() -> None:
    found = checks(arm(11, scale=2.0), arm(12), arm(13), arm(14, scale=0.87))
    assert [claim for claim, each in found.items() if not each.why] == []
    assert {claim: each.verdict for claim, each in found.items()} == {
        "now-31": "holds",
        "now-32": "holds",
        "now-33": "holds",  # 2.0 of 1.75
        "now-34": "holds",  # 1.15 of 1.1 to 1.2
        "now-35": "holds",
        "now-36": "holds",
        "now-37": "holds",
        "now-38": "holds",
    }
    assert (
        found["now-33"].measured
        == "100 µs and 200 µs with 3.12.1 (GCC 12.2.0, -O3) and 3.11.1 (GCC 12.2.0, -O3): 2.00×"
    )


def test_a_newer_one_that_is_slower_and_larger_is_said_to_be() -> None:
    found = checks(arm(11), arm(14, scale=1.5))
    assert {found[claim].verdict for claim in ("now-35", "now-36", "now-37", "now-38")} == {"does not hold"}
    assert "now-33" not in found  # 3.12 is not here


def test_versions_that_were_built_otherwise_are_shown_and_not_judged() -> None:
    found = checks(arm(11, scale=3.0), arm(14, options=("-O2", "PGO")))
    assert {found[claim].verdict for claim in ("now-35", "now-36", "now-37", "now-38")} == {"cannot be told here"}
    assert found["now-36"].why.startswith("They were not built with the same options")
    assert "3.00×" in found["now-36"].measured
    assert found["now-31"].verdict == "holds"


def test_calls_a_second_are_not_judged_where_the_server_was_not_the_limit() -> None:
    found = checks(arm(11), arm(14, scale=0.5, used_cores=[0.4]))
    assert found["now-35"].verdict == "cannot be told here"
    assert found["now-35"].why.startswith("CPython 3.14 used 0.40 cores, CPython 3.11 1.00: something else")
    assert found["now-36"].verdict == "holds"


def test_starts_are_not_judged_where_one_of_the_two_compiles_its_modules() -> None:
    new = arm(14, scale=3.0)
    new.said["uncompiled"] = 590
    found = checks(arm(11), new)
    assert found["now-37"].verdict == "cannot be told here"
    assert found["now-37"].why.startswith("CPython 3.14 compiled 590 modules at each start, CPython 3.11 0: ")
    assert found["now-36"].verdict == "does not hold"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"wrong": ["39 calls answered, 40 sent"]}, "CPython 3.14: 39 calls answered, 40 sent"),
        (
            {"said": {"python": "3.13.0", "modules": 1, "uncompiled": 0, "blocks": 1, "packages": {"mcp": "2.3.0"}}},
            "CPython 3.14 served as 3.13.0",
        ),
        (
            {"said": {"python": "3.14.1", "modules": 1, "uncompiled": 0, "blocks": 1, "packages": {"mcp": "1.30.0"}}},
            "CPython 3.14 has mcp 1.30.0 instead of 2.3.0",
        ),
    ],
)
def test_servers_that_differ_in_more_than_their_version_are_found_out(given: dict[str, Any], told: str) -> None:
    check = checks(arm(11), arm(14, **given))["now-31"]
    assert (check.verdict, check.measured) == ("does not hold", told)


def test_a_probe_that_names_another_version_or_misses_a_call_is_found_out() -> None:
    wrong = arm(14)
    wrong.server = Told("3.13.0", 4)
    check = checks(arm(11), wrong)["now-32"]
    assert (check.verdict, check.measured) == ("does not hold", "CPython 3.14: 3.13.0, 12 of 15 calls")


def test_what_was_not_measured_is_not_claimed() -> None:
    old = arm(11)
    del old.measures["resident_mb"]
    assert "now-38" not in checks(old, arm(14))


def test_one_version_alone_still_proves_its_counts() -> None:
    assert set(checks(arm(11))) == {"now-31", "now-32"}
