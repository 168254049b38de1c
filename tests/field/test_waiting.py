"""What clients measured that they waited, with clocks of their own, beside what the report says.

A share has a bound only where the waiting is constructed: at least 100 ms a call. The report's figures are lower
bounds, but an answer counts as written when the server's thread has noted it, and the client may have it before.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.field.__main__ import read_report
from tools.field.client import Client
from tools.field.servers import Setting
from tools.interpreters import ROOT
from tools.waiting.__main__ import Measured, measure
from tools.waiting.shapes import SDKS, Cell, Shape, asked, cell

LEAST_SHARE = 0.9
LATE_MS = 10.0
"""A call's answer may be noted so much later than it was written, on a machine with other work."""
CELLS = [
    ("progress", "mcp 2.3", "HTTP"),
    ("progress", "mcp 1.30", "HTTP"),
    ("in threads", "mcp 2.3", "stdio"),
    pytest.param("blocked loop", "mcp 1.30", "stdio", marks=pytest.mark.endurance),
    pytest.param("many at once", "mcp 2.3", "HTTP", marks=pytest.mark.endurance),
]


def in_each_sdk(quick: str) -> pytest.MarkDecorator:
    """``quick`` runs with every change, the others with `make test-endurance`."""
    marked = [sdk if sdk == quick else pytest.param(sdk, marks=pytest.mark.endurance) for sdk in SDKS]
    return pytest.mark.parametrize("sdk", marked)


def measured(found: Cell, kept: Path) -> Measured:
    environments = ROOT / ".envs"
    if not (environments / found.row.lock).exists():
        pytest.skip(f"{found.row.lock} is not installed: `make envs` does it")
    return measure(found, environments, kept)


def special(sdk: str, transport: str, converse: Callable[[Client, Setting], None]) -> Cell:
    return Cell(Shape("special", converse), cell("awaits", sdk, transport).row)  # type: ignore[arg-type]


def at_most(measured: Measured, tool: str) -> float:
    """What the report may say of the calls of ``tool``."""
    return measured.by_tool[tool][0] + LATE_MS * measured.calls[tool]


@pytest.mark.parametrize(("shape", "sdk", "transport"), CELLS)
def test_the_report_says_what_clients_measured(shape: str, sdk: str, transport: str, tmp_path: Path) -> None:
    asked_of = cell(shape, sdk, transport)  # type: ignore[arg-type]
    found = measured(asked_of, tmp_path)
    assert found.agrees, "the first line and the JSON"
    assert found.report_ms == pytest.approx(sum(said for _, said in found.by_tool.values()))
    for tool in asked_of.shape.tools:
        waited, said = found.by_tool[tool]
        assert waited >= 100 * found.calls[tool], "as constructed"
        assert LEAST_SHARE * waited <= said <= at_most(found, tool)


@in_each_sdk("mcp 2.3")
def test_a_call_whose_client_has_left_is_not_waited_for_until_its_thread_is_done(sdk: str, tmp_path: Path) -> None:
    def converse(client: Client, setting: Setting) -> None:
        left = asked(client, "in_thread", seconds=2.0)
        time.sleep(0.5)
        client.close()
        left.answered_s = time.monotonic()  # nobody waits any more

    found = measured(special(sdk, "stdio", converse), tmp_path)
    waited, said = found.by_tool["in_thread"]
    assert LEAST_SHARE * waited <= said <= at_most(found, "in_thread")


@in_each_sdk("mcp 1.30")
def test_a_call_that_a_killed_server_never_answered_counts_with_its_age(sdk: str, tmp_path: Path) -> None:
    def converse(client: Client, setting: Setting) -> None:
        for _ in range(3):
            client.wait([asked(client, "in_steps", seconds=0.8)])
        fresh = asked(client, "in_steps", seconds=60.0)
        time.sleep(0.4)
        children = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        if not children.exists():
            pytest.skip("the system does not say which process is the server")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        fresh.answered_s = time.monotonic()

    found = measured(special(sdk, "stdio", converse), tmp_path)
    waited, said = found.by_tool["in_steps"]
    assert LEAST_SHARE * 3 * 800 <= said <= at_most(found, "in_steps")
    assert waited < 4 * 800, "the others' mean would be too much"


@in_each_sdk("mcp 2.3")
def test_nobody_waits_for_a_notification_that_was_accepted_long_before_it_was_read(sdk: str, tmp_path: Path) -> None:
    def converse(client: Client, setting: Setting) -> None:
        blocking = asked(client, "on_the_loop", seconds=0.6)
        time.sleep(0.1)
        for _ in range(3):
            client._deliver({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
        client.wait([blocking])

    found = measured(special(sdk, "HTTP", converse), tmp_path)
    report = read_report(next(tmp_path.iterdir()) / "report.json")
    (row,) = [row for row in report["operations"] if row["kind"] == "notification"]
    assert row["count"] == 4 and row["total_ms"]["max"] > 300, "they lay there for long"
    assert row["all_calls_ms"] is None
    assert found.report_ms == pytest.approx(sum(said for _, said in found.by_tool.values()))
    assert not [pair for pair in report["blocked_by"] if pair["victim"] == "notifications/initialized"]
