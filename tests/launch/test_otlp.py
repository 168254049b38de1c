"""`mcp-probe run --otlp`: the parent exports what a server without OpenTelemetry has recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_probe.model import Frame
from tests.export.otlp_backend import HttpBackend
from tests.export.speaking import FAST, Spoken
from tests.export.speaking import environment as speaking_environment
from tests.frames import MS, SECOND, make_end, make_header, make_request
from tests.launch.running import SEND_ALL, environment, player, probe_run, program, run
from tests.ports import free_port

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

REQUESTS: tuple[Frame, ...] = (
    make_header(server="played", pid=4711, python="3.12.1"),
    *(
        make_request(
            id=number,
            arrival_ns=number * SECOND,
            busy=2 * MS,
            awaiting=8 * MS,
            trace_id=TRACE,
            span_id=f"{number:016x}",
            parent_span_id=PARENT,
            trace_flags=1,
        )
        for number in (1, 2, 3)
    ),
    make_end(at_ns=4 * SECOND),
)

_LEGACY_SERVER = """
import sys
from mcp.server.fastmcp import FastMCP

server = FastMCP("legacy", log_level="CRITICAL")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool()
def loaded() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]

server.run("stdio")
"""


def exporting(**added: str) -> dict[str, str]:
    clean = speaking_environment(**{"MCP_PROBE_OTLP_EXIT_MS": "60000", **added})
    return {key: value for key, value in environment(**clean).items() if key in clean}


def test_spans_keep_the_ids_and_times_they_had_in_the_server_whose_process_is_the_resource(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        ended = run(player(tmp_path, SEND_ALL, REQUESTS), "--otlp", backend.url, env=exporting())
    assert ended.returncode == 0, ended.stderr.decode()
    spans = [span for span in backend.kept.spans() if span.name == "tools/call add"]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.parent_span_id.hex() for span in spans} == {PARENT}
    assert sorted(span.span_id.hex() for span in spans) == [f"{number:016x}" for number in (1, 2, 3)]
    starts = sorted(span.start_time_unix_nano for span in spans)
    assert [start - starts[0] for start in starts] == [0, SECOND, 2 * SECOND]
    assert {span.end_time_unix_nano - span.start_time_unix_nano for span in spans} == {10 * MS}
    assert "mcp.server.operation.duration" in backend.kept.metric_names()
    for resource in backend.kept.resources():
        assert resource["service.name"] == "played"
        assert (resource["process.pid"], resource["process.runtime.version"]) == (4711, "3.12.1")


def test_a_server_of_a_foreign_interpreter_is_traced_without_opentelemetry_in_it(
    tmp_path: Path, env_python: Callable[[str], Path]
) -> None:
    server = program(tmp_path, _LEGACY_SERVER, python=str(env_python("mcp1")))
    summary = tmp_path / "summary.json"
    command = probe_run(server, "--json", str(summary), "--otlp")
    with HttpBackend() as backend:
        env = exporting(OTEL_EXPORTER_OTLP_ENDPOINT=backend.url, **FAST)
        with Spoken(command, env) as speaking:
            assert speaking.call("loaded", x=1)["content"] == []
            speaking.call("add", {"traceparent": f"00-{TRACE}-{PARENT}-01"}, a=1, b=2)
            speaking.end()
    assert speaking.exit_code == 0
    span = next(span for span in backend.kept.spans() if span.name == "tools/call add")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert {resource["service.name"] for resource in backend.kept.resources()} == {"legacy"}
    telemetry = {row["signal"]: row for row in json.loads(summary.read_text())["probe"]["telemetry"]}
    assert telemetry["spans"]["delivered"] == len(backend.kept.spans())
    assert telemetry["spans"]["undelivered"] == telemetry["metric exports"]["undelivered"] == 0


def test_each_serving_process_is_a_resource_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    frames = [(make_header(server=name, pid=pid), *REQUESTS[1:]) for name, pid in (("one", 1), ("two", 2))]
    commands = [player(tmp_path / folder, SEND_ALL, sent) for folder, sent in zip("ab", frames, strict=True)]
    both = program(tmp_path, f"import subprocess\nfor command in {commands!r}: subprocess.run(command, check=True)\n")
    with HttpBackend() as backend:
        ended = run(both, "--otlp", backend.url, env=exporting())
    assert ended.returncode == 0, ended.stderr.decode()
    found = {(resource["service.name"], resource["process.pid"]) for resource in backend.kept.resources()}
    assert found == {("one", 1), ("two", 2)}
    assert len(backend.kept.spans()) >= 6


@pytest.mark.parametrize("hang", [True, False], ids=["never answers", "down"])
def test_a_misbehaving_backend_is_in_the_report_and_the_exit_stays_the_commands_own(hang: bool, tmp_path: Path) -> None:
    command = player(tmp_path, SEND_ALL + "sys.exit(7)\n", REQUESTS)
    summary = tmp_path / "summary.json"
    with HttpBackend(hang=hang) as backend:
        url = backend.url if hang else f"http://127.0.0.1:{free_port()}"
        env = exporting(MCP_PROBE_OTLP_EXIT_MS="300")
        ended = run(command, "--otlp", url, "--json", str(summary), env=env)
    assert ended.returncode == 7
    said = ended.stderr.decode()
    assert "Traceback" not in said
    assert " ".join(said.split()).count("spans could not be delivered to") == 1
    telemetry = {row["signal"]: row for row in json.loads(summary.read_text())["probe"]["telemetry"]}
    assert (telemetry["spans"]["delivered"], telemetry["spans"]["undelivered"]) == (0, 3)


def test_otlp_may_come_from_the_environment_and_the_command_does_not_export_a_second_time(tmp_path: Path) -> None:
    told = tmp_path / "told"
    body = f"open({str(told)!r}, 'w').write(repr([os.environ.get('MCP_PROBE_' + n) for n in ('OTLP', 'TELEMETRY')]))\n"
    with HttpBackend() as backend:
        ended = run(player(tmp_path, body + SEND_ALL, REQUESTS), env=exporting(MCP_PROBE_OTLP=backend.url))
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(backend.kept.spans()) == 3
    assert told.read_text() == "['', 'relay']"


def test_without_otlp_the_commands_own_options_are_left_alone(tmp_path: Path) -> None:
    told = tmp_path / "told"
    body = f"open({str(told)!r}, 'w').write(repr([os.environ.get('MCP_PROBE_' + n) for n in ('OTLP', 'TELEMETRY')]))\n"
    run(player(tmp_path, body + SEND_ALL, REQUESTS), env=exporting(MCP_PROBE_TELEMETRY="off"))
    assert told.read_text() == "[None, 'off']"


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        (["--otlp", "collector:4317"], {}, "expected a URL with http or https"),
        (["--otlp", "http://c:4318"], {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "expected grpc or http/protobuf"),
        ([], {"MCP_PROBE_OTLP": "collector"}, "otlp is 'collector'"),
        (["--otlp"], {"MCP_PROBE_DETAIL": "much"}, "MCP_PROBE_DETAIL is 'much'"),
    ],
)
def test_what_is_wrong_with_telemetry_is_said_before_anything_runs(
    options: list[str], env: dict[str, str], words: str, tmp_path: Path
) -> None:
    proof = tmp_path / "started"
    ended = run(program(tmp_path, f"open({str(proof)!r}, 'w')"), *options, env=exporting(**env))
    assert ended.returncode == 2
    assert words in " ".join(ended.stderr.decode().split())
    assert not proof.exists()


def test_the_sdks_own_switch_leaves_the_report_and_exports_nothing(tmp_path: Path) -> None:
    with HttpBackend() as backend:
        command = player(tmp_path, SEND_ALL, REQUESTS)
        ended = run(command, "--otlp", backend.url, env=exporting(OTEL_SDK_DISABLED="true"))
        assert backend.kept.asked == 0
    assert ended.returncode == 0
    assert b"played" in ended.stderr


def test_a_server_that_is_killed_has_exported_what_it_had_sent(tmp_path: Path) -> None:
    body = "sink.write(lines[:-1])\nimport signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with HttpBackend() as backend:
        ended = run(player(tmp_path, body, REQUESTS), "--otlp", backend.url, env=exporting())
    assert ended.returncode == -9
    assert len(backend.kept.spans()) == 3
