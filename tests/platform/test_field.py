"""What `make field` says of a server: each rule breaks where it should, and the page has a table of the right form."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.rounds import least_disturbed
from tools.compatibility import rows
from tools.field.client import Connection, Exchange
from tools.field.judge import ALONE, HOLDING, PING, QUICK, QUIET, Percentile, judge, nearest_rank
from tools.field.servers import ROWS
from tools.field.witness import Witness, held_ms
from tools.interpreters import ROOT


@pytest.mark.parametrize(
    ("client", "low", "high", "fault"),
    [
        (400, 395, 395, ""),
        (400, 350, 350, "false"),
        (400, 390, 410, ""),
        (400, 200, 410, "too wide"),
        (2000, 1850, 2010, ""),
        (400, 100, 200, "false"),
        (152, 131, 141, "false"),
        (152, 140, 148, ""),
        (400, 390, None, "not bounded on both sides"),
        (4, 2, 2, ""),
        (4, 9, 9, "false"),
    ],
)
def test_a_percentile_is_near_the_clients_or_a_narrow_interval_around_it(
    client: float, low: float, high: float | None, fault: str
) -> None:
    assert Percentile(client, low, high).fault == fault


def exchanges() -> list[Exchange]:
    """Ten quiet calls of 10 ms, ten of 510 that waited, and as many pings."""
    found = []
    for operation, label in (("get", QUICK), ("ping", PING)):
        found += [Exchange(operation, QUIET, 0.0, 0.010) for _ in range(10)]
        found += [Exchange(operation, label, 0.0, 0.510) for _ in range(10)]
    return [*found, Exchange("slow", "holding", 0.0, 0.6)]


def report(*, blamed_ms: float, pings: int = 20) -> dict[str, Any]:
    def operation(name: str, count: int) -> dict[str, Any]:
        figures = {"p50": 10.0, "p95": 510.0}
        return {"name": name, "kind": "request", "count": count, "total_ms": figures, "quality": {}}

    return {
        "server": {"sdk": "mcp", "sdk_version": "1.30.0"},
        "operations": [operation("get", 20), operation("ping", pings), operation("slow", 1)],
        "blocked_by": [{"victim": "get", "blocker": "slow", "lo_ms": blamed_ms, "hi_ms": None}],
        "verdict": {"code": "blocking-call", "sentence": "It blocks."},
    }


def test_a_true_report_has_no_fault() -> None:
    found = judge(exchanges(), report(blamed_ms=9_500), blocks=True)
    assert found.waited == pytest.approx(10_000)
    assert found.faults == []


@pytest.mark.parametrize(
    ("blamed_ms", "blocks", "fault"),
    [
        (8_000, True, "blames 80% of the wait"),
        (12_000, True, "blames more than the wait: 120%"),
        (800, False, "blames 800 ms where the loop was held for 0 ms"),
    ],
)
def test_blame_is_held_against_the_wait(blamed_ms: float, blocks: bool, fault: str) -> None:
    assert judge(exchanges(), report(blamed_ms=blamed_ms), blocks=blocks).faults == [fault]


@pytest.mark.parametrize("blocks", [True, False])
def test_nobody_is_to_blame_for_more_than_was_seen_of_the_loop(blocks: bool) -> None:
    """10 victims of 500 ms and 10 of 10 wait; the loop was held for half of the time, seen from outside."""
    faults = judge(exchanges(), report(blamed_ms=9_500), blocks=blocks, held_ms=lambda a, b: (b - a) * 500).faults
    assert faults == ["blames 9500 ms where the loop was held for 5100 ms"]
    assert not judge(exchanges(), report(blamed_ms=9_500), blocks=blocks, held_ms=lambda a, b: (b - a) * 900).faults


def test_holding_calls_of_the_quick_tool_are_victims_of_each_other() -> None:
    beside = [Exchange("get", HOLDING, 0.0, 1.01), Exchange("get", ALONE, 0.0, 0.01)]
    slow = report(blamed_ms=10_500)
    slow["operations"][0]["count"] = 22
    found = judge([*exchanges(), *beside], slow, blocks=True)
    assert found.waited == pytest.approx(11_000)
    assert found.faults == []


LOOKS = [(0.0, True), (1.0, True), (2.0, False), (3.0, False), (4.0, True)]


@pytest.mark.parametrize(
    ("from_s", "to_s", "held_s"),
    [(0.0, 1.0, 0.0), (2.0, 3.0, 1.0), (2.5, 2.75, 0.25), (1.0, 2.0, 0.5), (0.5, 4.0, 2.0), (3.5, 4.1, None)],
)
def test_the_loop_was_held_from_look_to_look(from_s: float, to_s: float, held_s: float | None) -> None:
    assert held_ms(LOOKS, from_s, to_s) == (None if held_s is None else pytest.approx(held_s * 1e3))


LOOP = """
import asyncio, json, time
async def main():
    at = [time.monotonic()]
    for wait in (asyncio.sleep, lambda seconds: asyncio.sleep(0, time.sleep(seconds)), asyncio.sleep):
        await wait(0.3)
        at.append(time.monotonic())
    print(json.dumps(at), flush=True)
    await asyncio.sleep(0.5)
asyncio.run(main())
"""
LAUNCHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LOOP!r}])"


def witnessed() -> tuple[Witness, list[float]]:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    while not children.read_text():
        time.sleep(0.005)
    with Witness(launcher.pid) as witness:
        said, _ = launcher.communicate(timeout=60)
    return witness, json.loads(said)


def off_ms(played: tuple[Witness, list[float]]) -> float:
    """How late the program went on, or for how long nobody looked; not what the witness made of it."""
    witness, at = played
    looks = [when for when, _ in witness.looks if at[0] + 0.02 <= when <= at[-1]]
    if not witness.looks:
        return 0.0  # skipped, for the kernel does not tell
    seen = [at[0] + 0.02, *looks, at[-1]]
    return 1e3 * max(*(b - a for a, b in pairwise(seen)), *(b - a - 0.3 for a, b in pairwise(at)))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_witness_tells_a_loop_that_is_blocked_from_one_that_sleeps() -> None:
    [(witness, (began, slept, blocked, ended))] = least_disturbed(witnessed, off_ms, fine_ms=25, rounds=1)
    held = witness.held_ms(slept, blocked)
    if held is None:
        pytest.skip("the kernel does not say what the thread of a child does")
    assert held >= 0.9 * (blocked - slept) * 1e3
    for idle in (witness.held_ms(began + 0.02, slept), witness.held_ms(blocked, ended)):
        assert idle is not None and idle <= 150


BODY = b'data: {"id": 1}\r\n\r\n'
PIECES = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (BODY[:7], BODY[7:])) + b"0\r\n\r\n"
ANSWERS = {
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMcp-Session-Id: s\r\n\r\n" + PIECES,
    "with a length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nMcp-Session-Id: s\r\n\r\n%s" % (len(BODY), BODY),
}


@pytest.fixture
def connected() -> Iterator[tuple[Connection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(listener.getsockname()[1])
        peer, _ = listener.accept()
        with peer, connection.socket:
            yield connection, peer


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_is_complete_with_its_last_byte(connected: Any, answer: bytes, size: int) -> None:
    connection, _ = connected
    lines = []
    for start in range(0, len(answer), size):
        assert not connection.complete
        lines += connection.feed(answer[start : start + size])
    assert connection.complete
    assert [line.strip() for line in lines if line.strip()] == [BODY.strip()]
    assert (connection.status, connection.headers["mcp-session-id"]) == (200, "s")


@pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS")
def test_an_answer_that_is_read_late_came_when_it_was_in_the_socket(connected: Any) -> None:
    connection, peer = connected
    for _ in range(50):  # the kernel begins to stamp a moment after it was asked to
        before = time.monotonic()
        peer.sendall(b"x")
        after = time.monotonic()
        time.sleep(0.05)
        data, at = connection.receive()
        assert data == b"x"
        if before - 0.001 <= at <= after + 0.001:  # reading two clocks may be interrupted
            return
    raise AssertionError("it never came when it was sent")


def test_a_request_that_nobody_sent_is_a_fault() -> None:
    found = judge(exchanges(), report(blamed_ms=9_500, pings=21), blocks=True)
    assert found.faults == ["20 of `ping` sent, 21 counted"]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert nearest_rank([5.0, 1.0, 3.0, 2.0, 4.0], 0.5) == 3.0
    assert nearest_rank([5.0, 1.0, 3.0, 2.0, 4.0], 0.95) == 5.0


def test_every_row_has_its_locks_and_its_target() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = {word.removeprefix("field-") for word in re.findall(r"[a-z][\w-]+", makefile)}
    for row in ROWS:
        assert (ROOT / "requirements" / f"{row.lock}.txt").exists(), row.lock
        assert row.lock.removeprefix("field-") in listed, row.lock


def test_the_page_has_the_servers_it_should_have() -> None:
    found = rows("field")
    ran = [row for row in found if len(row) == 13]
    assert len({row[0] for row in ran}) >= 12
    of_mcp_1 = {row[0] for row in ran if re.match(r"mcp 1|fastmcp [23]", row[1])}
    assert len(of_mcp_1) >= 6
    assert len({row[0] for row in ran if row[1].startswith("fastmcp 4") and row[2] == "HTTP"}) >= 3
    for row in ran:
        assert all(re.fullmatch(r"\d+ / (\d+|\?)(–(\d+|\?))?", cell) for cell in row[4:8]), row
