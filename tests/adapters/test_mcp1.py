"""mcp 1.x from a client's side: what was sent is counted, and every part of its way is seen, on each transport."""

from __future__ import annotations

import os
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.bounded import earlier_ns
from mcp_probe.model import ALL_SEEN, RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import HttpClient, RawClient, SseClient, StdioClient
from tests.ports import free_port

HERE = Path(__file__).parent
LONG_S = 0.8
"""For how long a tool blocks the loop."""
OURS = {"attach", "asgi", "streams", "decorator"}
"""Ways in which the server profiles itself."""
ADDS, PINGS = [f"add{n}" for n in range(5)], [f"ping{n}" for n in range(3)]
RUNS, LATE_MS = 3, 3.0
"""A run in which the client, ready to run, once did not for so long is made again; the last counts in any case."""


def client_of(transport: str, python: Path, folder: Path, ways: str, paths: str) -> RawClient:
    port = free_port()
    command = [str(python), str(HERE / "server_1x.py"), transport, str(port), ways]
    native = os.environ.get("MCP_PROBE_NATIVE")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": paths} | ({} if native is None else {"MCP_PROBE_NATIVE": native})
    profiled = bool(OURS & set(ways.split(",")))
    if transport == "stdio":
        return StdioClient(command, folder, environment, profiled=profiled)
    if transport == "http":
        return HttpClient(command, folder, environment, port, "/mcp", profiled=profiled)
    return SseClient(command, folder, environment, port, "/sse", profiled=profiled)


def everything(client: RawClient, environment: str, ways: str) -> None:
    """One call alone, others while a tool blocks, and what is answered otherwise than by a result."""
    if "stateless" in ways:
        client.session = "is sent, and nobody asks for it"  # else each request waits for the one before
    drive(client)
    client.call("bad", "add", a="no number", b=1)
    client.ask("unknown", unknown_to(environment), uri="nobody://knows")
    if "stateless" in ways:  # a notice reaches no call
        client.wait_for("bad", "unknown")
        return
    client.call("long", "wait")
    client.wait_for("bad", "unknown")
    client.wait_until_it_waits()
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}})
    if environment != "cell-mcp1.6":
        client.wait_for("long")
        return
    with suppress(AssertionError):  # its session ends with the first cancelled call, at times before it is answered
        client.wait_for("long", within_s=3.0)


def asked_everything(environment: str, transport: str, ways: str, python: Path, folder: Path, paths: str) -> RawClient:
    """A client that has asked, and whose server has ended."""
    for again in range(RUNS):
        place = folder / str(again)
        place.mkdir()
        client = client_of(transport, python, place, ways, paths)
        with client:
            everything(client, environment, ways)
        if client.late_ms < LATE_MS:
            break
    return client


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This probe, and the loops that the environments of mcp 1.x have not: they run the same Python."""
    folder = tmp_path_factory.mktemp("loops-only")
    for name in ("trio", "uvloop", "sortedcontainers", "outcome", "sniffio", "attr", "attrs"):
        (folder / name).symlink_to(Path(sysconfig.get_paths()["purelib"]) / name)
    return f"{HERE.parent.parent}{os.pathsep}{folder}"


class TooWide(AssertionError):
    """Bounds that hold, and are too far apart to be of use."""


QUICK = [
    ("cell-mcp1.6", "stdio", "attach"),
    ("cell-mcp1.6", "sse", ""),
    ("cell-mcp1.22", "http", "attach"),
    ("mcp1", "stdio", ""),
    ("mcp1", "stdio", "attach,low,trio"),
    ("mcp1", "sse", "attach"),
    ("mcp1", "http", "attach,uvloop,stateless"),
    ("mcp1", "stdio", "low,streams"),
    ("fastmcp2", "stdio", "attach"),
    ("fastmcp3", "http", ""),
]
TRANSPORTS = {"cell-mcp1.6": ["stdio", "sse"]}
"""Of an environment that has not all three."""
HIGH = [*TRANSPORTS, "cell-mcp1.22", "mcp1", "fastmcp2", "fastmcp3"]
MATRIX = [
    (environment, transport, ways)
    for environment in HIGH
    for transport in TRANSPORTS.get(environment, ["stdio", "http", "sse"])
    for ways in ["", "attach", *(["low", "attach,low"] if "mcp1" in environment else [])]
] + [
    *((environment, "stdio", ways) for environment in HIGH[:3] for ways in ("low,trio", "attach,low,trio")),
    *(("mcp1", transport, "uvloop") for transport in ("stdio", "http", "sse")),
    ("cell-mcp1.6", "sse", "attach,uvloop"),
    ("cell-mcp1.22", "http", "attach,uvloop"),
    ("mcp1", "sse", "attach,uvloop"),
    ("fastmcp2", "http", "attach,uvloop"),
    ("fastmcp3", "stdio", "attach,uvloop"),
    ("cell-mcp1.22", "http", "stateless,json"),
    ("mcp1", "http", "attach,stateless"),
    ("mcp1", "http", "attach,low,json"),
    ("fastmcp2", "http", "attach,stateless"),
    ("fastmcp3", "http", "stateless,json"),
    ("mcp1", "http", "attach,uvloop"),
    ("cell-mcp1.6", "sse", "asgi"),
    ("cell-mcp1.22", "http", "asgi"),
    ("mcp1", "sse", "asgi"),
    ("fastmcp2", "http", "asgi"),
    ("fastmcp3", "sse", "asgi"),
]
IN_PYTHON = [
    ("cell-mcp1.6", "stdio", "attach"),
    ("cell-mcp1.6", "sse", ""),
    ("cell-mcp1.22", "http", "attach"),
    ("mcp1", "stdio", "low"),
    ("mcp1", "sse", "attach,uvloop"),
    ("mcp1", "stdio", "attach,low,trio"),
    ("fastmcp2", "stdio", ""),
    ("fastmcp3", "http", "attach"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "transport", "ways"), QUICK)
def test_what_a_client_sends_is_counted_timed_and_blamed(
    environment: str, transport: str, ways: str, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    for again in range(RUNS):
        folder = tmp_path / str(again)
        folder.mkdir()
        client = asked_everything(environment, transport, ways, env_python(environment), folder, lent)
        try:
            assert_all_is_true(client, environment, transport, ways)
        except TooWide:  # a busy machine kept from its CPU who looks when bytes come
            if again == RUNS - 1:
                raise
        else:
            return


@pytest.mark.endurance
@pytest.mark.parametrize(("environment", "transport", "ways"), [cell for cell in MATRIX if cell not in QUICK])
def test_so_it_is_on_every_release_transport_and_loop(
    environment: str, transport: str, ways: str, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    client = asked_everything(environment, transport, ways, env_python(environment), tmp_path, lent)
    assert_all_is_true(client, environment, transport, ways)


@pytest.mark.endurance
@pytest.mark.parametrize(("environment", "transport", "ways"), IN_PYTHON)
def test_so_it_is_without_the_accelerator(
    environment: str,
    transport: str,
    ways: str,
    env_python: Callable[[str], Path],
    lent: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_PROBE_NATIVE", "0")
    client = asked_everything(environment, transport, ways, env_python(environment), tmp_path, lent)
    assert client.summary["probe"]["accelerator"] != "active"
    assert_all_is_true(client, environment, transport, ways)


def assert_all_is_true(client: RawClient, environment: str, transport: str, ways: str) -> None:
    """Every number against what ``everything`` sent, and how long its client waited."""
    records = records_of(client)
    outcomes = [(record.name or record.method, record.outcome) for record in records]
    if ("notifications/cancelled", "unfinished") in outcomes:  # the client ends right after the answer that it makes
        outcomes[outcomes.index(("notifications/cancelled", "unfinished"))] = ("notifications/cancelled", "ok")
    assert Counter(outcomes) == {
        ("initialize", "ok"): 1,
        ("notifications/initialized", "ok"): 1,
        ("add", "ok"): 6,
        ("add", "tool_error"): 1,
        ("ping", "ok"): 3,
        ("block", "ok"): 1,
        (unknown_to(environment), "error"): 1,
    } | ({} if "stateless" in ways else {("notifications/cancelled", "ok"): 1, ("wait", "cancelled"): 1})
    for record in records:
        assert record.protocol_version == client.answers["hello"][1]["result"]["protocolVersion"]
        assert record.transport == ("stdio" if transport == "stdio" else "http")
        if record.kind == "request":
            assert record.seen == ALL_SEEN
            assert_parts_are_the_whole(record)
    summary = client.summary
    assert summary["server"]["name"] == client.answers["hello"][1]["result"]["serverInfo"]["name"] == "one x"
    assert summary["server"]["loop"] == next((loop for loop in ("trio", "uvloop") if loop in ways), "asyncio")
    assert summary["probe"]["disabled_hooks"] == []
    assert (summary["outstanding"]["backlog_bytes_peak"] or 0) > 0 or transport != "stdio"
    assert_totals_are_the_clients(client, records)
    assert_blame_is_what_they_waited(client)
    assert summary["verdict"]["code"] == "blocking-call" and summary["verdict"]["subject"] == "block"
    lines = (HERE / "server_1x.py").read_text().splitlines()
    blocking = 1 + next(number for number, line in enumerate(lines) if line.endswith("# the line"))
    assert f"server_1x.py:{blocking}" in summary["verdict"]["sentence"]


def assert_totals_are_the_clients(client: RawClient, records: list[RequestRecord]) -> None:
    """Each call, and the percentiles."""
    rows = {row["name"] or row["method"]: row for row in client.summary["operations"]}
    for name, ids in (("add", ["warm", "bad", *ADDS]), ("ping", PINGS)):
        mine = sorted((r for r in records if (r.name or r.method) == name), key=lambda r: r.end_ns - r.arrival_ns)
        waited = list(zip(sorted(map(client.least_ms, ids)), sorted(map(client.latency_ms, ids)), strict=True))
        for record, (least, most) in zip(mine, waited, strict=True):
            assert_total_is_the_clients(record, least, most, client.late_ms)
        for quantile in (0.5, 0.95):
            least, most = waited[ceil(quantile * len(waited)) - 1]
            of_it = f"total_ms_p{quantile * 100:.0f}"
            told = rows[name]["total_ms"][of_it.removeprefix("total_ms_")]
            quality = rows[name]["quality"].get(of_it, {"tag": "exact", "lo": told, "hi": told})
            assert quality["tag"] in ("exact", "bounded"), (name, quality)
            assert 0.9 * least - client.late_ms <= quality["hi"], (name, quality, least)
            assert quality["lo"] <= 1.1 * most + client.late_ms, (name, quality, most)
            if quality["hi"] - quality["lo"] > max(20.0, 0.1 * most):
                raise TooWide(name, quality)


def assert_blame_is_what_they_waited(client: RawClient) -> None:
    """At least for 90 % of it, as a lower bound."""
    over = client.sent["block"] + LONG_S  # no earlier; who was answered before then had come before the block
    held_up_s = [max(0.0, over - client.handed[id]) for id in (*ADDS, *PINGS) if client.answers[id][0] > over]
    assert len(held_up_s) > 4, "most came while it blocked"
    blamed_ms = sum(
        row["lo_ms"]
        for row in client.summary["blocked_by"]
        if row["blocker"] == "block" and row["victim"] in ("add", "ping")
    )
    assert 0.9 * 1e3 * sum(held_up_s) <= blamed_ms <= 1.05 * sum(map(client.latency_ms, (*ADDS, *PINGS)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "transport"),
    [
        ("mcp1", "http"),
        *(
            pytest.param(environment, transport, marks=pytest.mark.endurance)
            for environment, transport in (
                ("cell-mcp1.6", "stdio"),
                ("cell-mcp1.22", "sse"),
                ("mcp1", "stdio"),
                ("mcp1", "sse"),
                ("fastmcp2", "stdio"),
                ("fastmcp3", "http"),
            )
        ),
    ],
)
def test_the_decorator_counts_the_calls_of_a_client(
    environment: str, transport: str, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    """It sees the functions and not the requests: who waited before its function ran is never said to be exact."""
    with client_of(transport, env_python(environment), tmp_path, "decorator", lent) as client:
        drive(client)
    records = records_of(client)
    assert {record.kind for record in records} == {"function"}
    assert Counter((record.method, record.outcome) for record in records) == {("add", "ok"): 6, ("block", "ok"): 1}
    assert ("blocking-call", "block") in {(found["code"], found["subject"]) for found in client.summary["findings"]}


def unknown_to(environment: str) -> str:
    """A method that no handler is there for. One that mcp 1.6 does not know at all ends the server."""
    return "resources/subscribe" if environment == "cell-mcp1.6" else "nobody/knows"


def drive(client: RawClient) -> None:
    """One call alone, then others while a tool blocks."""
    client.call("warm", "add", a=1, b=1)
    client.wait_for("warm")
    client.call("block", "block", seconds=LONG_S)
    time.sleep(LONG_S / 4)
    for id in ADDS:
        client.call(id, "add", a=1, b=1)
    for id in PINGS:
        client.ask(id, "ping")
    client.wait_for("block", *ADDS, *PINGS)


def records_of(client: RawClient) -> list[RequestRecord]:
    return [frame for frame in read_recording(client.recording) if isinstance(frame, RequestRecord)]


def assert_total_is_the_clients(record: RequestRecord, least_ms: float, most_ms: float, late_ms: float) -> None:
    """The client waited between ``least_ms`` and ``most_ms``. It was up to ``late_ms`` late, as the server may be."""
    lo_ms = (record.end_ns - record.arrival_ns) / 1e6
    hi_ms = lo_ms + earlier_ns(record) / 1e6
    slack_ms = max(20.0, 0.1 * least_ms) + late_ms
    assert lo_ms - slack_ms <= most_ms and least_ms <= hi_ms + slack_ms, (record, least_ms, most_ms)
    if hi_ms - lo_ms > max(20.0, 0.1 * most_ms):
        raise TooWide(record)


def assert_parts_are_the_whole(record: RequestRecord) -> None:
    budget: dict[str, Any] = {name: getattr(record.budget, name) for name in record.budget.__slots__}
    assert None not in budget.values(), (record, budget)
    assert sum(budget.values()) == record.end_ns - record.arrival_ns
