"""Backends that are down, dead, slow or unwilling: the server is as fast as ever, and its exit stays within the bound.

Each runs beside its healthy twin, call by call in turn, so that both see the same machine.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.export.otlp_backend import GrpcBackend, HttpBackend
from tests.export.speaking import FAST, Spoken, environment, server_program
from tests.ports import free_port

EXIT_S = 0.3
PATIENT_S = 60.0
"""The bound where the backend is well: nothing may be lost, however late this process answers."""
SLACK_S = 5.0  # a loaded machine; an exporter left to itself would take 10 s
ROUNDS, CALLS = 8, 20
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@contextmanager
def silent() -> Iterator[str]:
    """A port where connections are taken by the kernel and by nobody else."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def misbehaving(how: str) -> Iterator[str]:
    import grpc  # type: ignore[import-untyped]

    with ExitStack() as stack:
        if how.endswith("down"):
            yield f"http://127.0.0.1:{free_port()}"
        elif how == "never answers":
            yield stack.enter_context(HttpBackend(hang=True)).url
        elif how == "never even accepts":
            yield stack.enter_context(silent())
        elif how == "no TLS where TLS is asked for":
            yield stack.enter_context(HttpBackend()).url.replace("http:", "https:")
        elif how == "grpc without TLS":
            yield stack.enter_context(GrpcBackend()).url.replace("http:", "https:")
        elif how == "grpc never answers":
            yield stack.enter_context(GrpcBackend(hang=True)).url
        elif how == "grpc refuses":
            yield stack.enter_context(GrpcBackend(code=grpc.StatusCode.INVALID_ARGUMENT)).url
        else:
            yield stack.enter_context(HttpBackend(status=int(how))).url


def protocol_of(how: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"} if "grpc" in how else {}


def options(url: str, summary: Path, exit_s: float = EXIT_S) -> dict[str, str]:
    """No request counts as slow, so its SERVER span is all that is sent of it."""
    bounds = {"MCP_PROBE_OTLP_EXIT_MS": str(exit_s * 1e3), "MCP_PROBE_SLOW_REQUEST_MS": "3600000"}
    return environment(MCP_PROBE_OTLP=url, SUMMARY=str(summary), **bounds, **FAST)


# At exit, before ours: keeps the summary as it is once everything has been delivered or given up.
KEEP_SUMMARY = """
import atexit, json, mcp_probe

def keep():
    with open(os.environ["SUMMARY"], "w") as file:
        json.dump(probe.snapshot().to_json(), file)

atexit.register(keep)
probe = mcp_probe.attach(server, record=os.devnull)
"""


def deliveries(summary: Path) -> dict[str, Any]:
    return {row["signal"]: row for row in json.loads(summary.read_text())["probe"]["telemetry"]}


@pytest.mark.parametrize(
    "how",
    [
        "down",
        "never answers",
        "never even accepts",
        "400",
        "503",
        "no TLS where TLS is asked for",
        "grpc down",
        "grpc refuses",
        "grpc never answers",
        "grpc without TLS",
    ],
)
def test_a_misbehaving_backend_costs_the_server_nothing_but_a_bounded_exit(how: str, tmp_path: Path) -> None:
    program = server_program(tmp_path, KEEP_SUMMARY)
    command = [sys.executable, str(program)]
    kept = {name: tmp_path / f"{name}.json" for name in ("good", "bad")}
    backend = GrpcBackend() if "grpc" in how else HttpBackend()
    with backend, misbehaving(how) as url:
        env = protocol_of(how)
        with (
            Spoken(command, options(backend.url, kept["good"], PATIENT_S) | env) as good,
            Spoken(command, options(url, kept["bad"]) | env) as bad,
        ):
            pairs: list[tuple[float, float]] = []
            # The machine's load may meet one of the two for a while; a server that is slow stays so.
            while len(pairs) < ROUNDS or (slower(pairs) >= 2 and len(pairs) < 3 * ROUNDS):
                pairs.append((good.median_ms(CALLS), bad.median_ms(CALLS)))
            healthy_s, ill_s = good.end(), bad.end()

    assert (good.exit_code, bad.exit_code) == (0, 0)
    assert slower(pairs) < 2, pairs
    assert ill_s < healthy_s + EXIT_S + SLACK_S
    spans = deliveries(kept["bad"])["spans"]
    calls = 2 + len(pairs) * CALLS
    assert (spans["delivered"], spans["undelivered"]) == (0, calls)
    assert spans["reason"]
    assert deliveries(kept["bad"])["metric exports"]["undelivered"] >= 1
    said = [line for line in bad.stderr.splitlines() if line]
    assert len(said) == 1 and said[0].startswith("mcp_probe: telemetry for "), bad.stderr
    assert good.stderr == ""
    assert deliveries(kept["good"])["spans"]["delivered"] == calls
    assert deliveries(kept["good"])["spans"]["undelivered"] == 0


def slower(pairs: list[tuple[float, float]]) -> float:
    return sorted(bad / good for good, bad in pairs)[len(pairs) // 2]


def test_a_backend_that_dies_in_mid_run_and_comes_back_loses_only_what_was_counted(tmp_path: Path) -> None:
    program = server_program(tmp_path, KEEP_SUMMARY)
    backend = HttpBackend()
    summary = tmp_path / "summary.json"
    with Spoken([sys.executable, program], options(backend.url, summary, PATIENT_S)) as server:
        before = server.median_ms(CALLS)
        assert backend.kept.wait(lambda kept: len(kept.spans()) >= CALLS + 2)
        backend.status = 400
        during = server.median_ms(CALLS)
        assert backend.kept.wait(lambda kept: "/v1/traces" in kept.refused)
        backend.status = 200
        after = server.median_ms(CALLS)
        server.end()
    backend.close()
    counts = deliveries(summary)["spans"]
    assert counts["delivered"] == len(backend.kept.spans())
    assert counts["delivered"] + counts["undelivered"] == 2 + 3 * CALLS
    assert counts["undelivered"] >= 1 and counts["delivered"] > CALLS + 2
    assert during < 5 * before + 50 and after < 5 * before + 50
    assert server.stderr.count("mcp_probe: telemetry for ") == 1


def test_a_backend_whose_process_dies_is_a_backend_that_is_down(tmp_path: Path) -> None:
    program = server_program(tmp_path, KEEP_SUMMARY)
    backend = HttpBackend()
    summary = tmp_path / "summary.json"
    with Spoken([sys.executable, program], options(backend.url, summary)) as server:
        server.median_ms(CALLS)
        assert backend.kept.wait(lambda kept: len(kept.spans()) >= CALLS + 2)
        backend.close()
        server.median_ms(CALLS)
        took = server.end()
    assert took < EXIT_S + 1.0 + SLACK_S
    counts = deliveries(summary)["spans"]
    assert (counts["delivered"], counts["undelivered"]) == (CALLS + 2, CALLS)
    assert server.exit_code == 0


@pytest.mark.parametrize("hang", [False, True], ids=["healthy", "never answers"])
def test_an_http_server_ended_by_a_signal_delivers_before_it_within_the_bound(hang: bool, tmp_path: Path) -> None:
    port = free_port()
    program = server_program(tmp_path, "import mcp_probe; mcp_probe.attach(server)")
    over_http = f'server.run("streamable-http", port={port})'
    program.write_text(program.read_text().replace('server.run("stdio")', over_http))
    with HttpBackend(hang=hang) as backend:
        env = options(backend.url, tmp_path, EXIT_S if hang else PATIENT_S) | {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
        with subprocess.Popen([sys.executable, program], env=env, stderr=subprocess.PIPE) as server:
            for number in range(3):
                post(port, number)
            since = time.perf_counter()
            server.terminate()
            _, said = server.communicate(timeout=60)
            took = time.perf_counter() - since
    assert server.returncode == -signal.SIGTERM  # so nothing registered for the exit has run
    assert "Traceback" not in said.decode()
    assert said.decode().count("mcp_probe: telemetry for ") == hang
    assert took < 0.5 + EXIT_S + SLACK_S
    assert len(backend.kept.spans()) == (0 if hang else 3)
    assert bool(backend.kept.metrics) is not hang


def post(port: int, number: int) -> None:
    """Ask for the tools; the server may still be starting."""
    body = {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": INITIALIZE}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/mcp",
        json.dumps(body).encode(),
        {"content-type": "application/json", "accept": "application/json, text/event-stream"},
    )
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            return
        except urllib.error.URLError as exc:
            if not isinstance(exc.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
