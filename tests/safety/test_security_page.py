"""What docs/security.md says of URIs, injected variables and what a SIGKILL leaves, by runs of `mcp-probe run`."""

from __future__ import annotations

import os
import re
import select
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export.otlp_backend import HttpBackend
from tests.launch.running import LIMIT_S, ROOT, environment, probe_run, program, start
from tests.safety.conversation import INITIALIZED, Conversation, encode, initialize, request

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")

SERVER = """
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("uris", log_level="CRITICAL")

@server.resource("note://{host}/{path}")
def note(host: str, path: str) -> str:
    return "text"

server.run("stdio")
"""
URI = "note://user:planted-password@host/planted-path?token=planted-query#planted-fragment"


@pytest.mark.slow
@pytest.mark.parametrize("sdk", ["mcp2", "mcp1"])
@pytest.mark.parametrize("otlp", [False, True], ids=["without --otlp", "with --otlp"])
def test_a_uri_is_in_a_recording_with_otlp_alone_and_never_whole(
    otlp: bool, sdk: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = sys.executable if sdk == "mcp2" else str(env_python(sdk))
    files = {name: tmp_path / name for name in ("recording", "json", "report")}
    options = ["--record", str(files["recording"]), "--json", str(files["json"]), "--output", str(files["report"])]
    with HttpBackend() as backend:
        options += ["--otlp", backend.url] if otlp else []
        patient = {"MCP_PROBE_OTLP_EXIT_MS": "30000"}
        with Conversation(probe_run(program(tmp_path, SERVER, python=python), *options), env=patient) as client:
            client.send(initialize(0))
            client.wait_for(0)
            client.send(INITIALIZED, request(1, "resources/read", uri=URI))
            client.wait_for(1)
        sent = "".join(map(str, (*backend.kept.traces, *backend.kept.metrics)))
    assert client.exit_code == 0, client.stderr.decode()
    written = {name: path.read_text("utf-8") for name, path in files.items()} | {"telemetry": sent}
    with_path = {name for name, text in written.items() if "planted-path" in text}
    assert with_path == ({"recording", "telemetry"} if otlp else set())
    secrets = ("planted-password", "planted-query", "planted-fragment")
    assert [(name, secret) for name, text in written.items() for secret in secrets if secret in text] == []


@pytest.mark.parametrize("otlp", [False, True], ids=["without --otlp", "with --otlp"])
def test_a_run_adds_the_variables_that_the_page_names_and_one_folder(otlp: bool, tmp_path: Path) -> None:
    (sentence,) = re.findall(r"^- Environment variables: (.+?); and one folder in front of `PYTHONPATH`", PAGE, re.M)
    always, _, with_otlp = sentence.partition("; with `--otlp` also ")
    named = set(re.findall(r"`(MCP_PROBE_\w+)`", always + (with_otlp if otlp else "")))
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "OTEL_"))}
    inherited["PYTHONPATH"] = str(ROOT)
    options = ("--otlp", "http://127.0.0.1:9") if otlp else ()
    ran = [
        subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        for command in ([sys.executable, "-c", show], probe_run([sys.executable, "-c", show], *options))
    ]
    bare, probed = (dict(re.findall(r'"(\w+)": "((?:[^"\\]|\\.)*)"', text)) for text in ran)
    changed = {key for key in probed.keys() | bare.keys() if probed.get(key) != bare.get(key)}
    assert changed == named | {"PYTHONPATH"}
    folder, _, rest = probed["PYTHONPATH"].partition(os.pathsep)
    assert (Path(folder), rest) == (Path(probed["MCP_PROBE_RUN"]) / "inject", str(ROOT))
    assert not Path(probed["MCP_PROBE_RUN"]).exists()


PLANTED_TOOL = """
import sys
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("killed", log_level="CRITICAL")

@server.tool()
def planted_tool(text: str) -> str:
    print("called", file=sys.stderr, flush=True)
    return text

server.run("stdio")
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a killed run does not end its server")
@pytest.mark.parametrize("otlp", [False, True], ids=["without --otlp", "with --otlp"])
def test_a_killed_run_leaves_its_folder_to_its_user_alone_and_no_request_in_it(otlp: bool, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with HttpBackend() as backend:
        options = ("--otlp", backend.url) if otlp else ()
        with start(program(tmp_path, PLANTED_TOOL), *options, env=environment(TMPDIR=str(temporary))) as run:
            assert run.stdin is not None and run.stdout is not None
            call = request(1, "tools/call", name="planted_tool", arguments={"text": "planted-argument"})
            for message in (initialize(0), INITIALIZED, call):
                run.stdin.write(encode(message))
                run.stdin.flush()
            answers = b""
            while b'"id":1' not in answers.replace(b" ", b""):
                assert select.select([run.stdout], [], [], LIMIT_S)[0], answers
                answers += os.read(run.stdout.fileno(), 65536)
            run.kill()
            run.wait(LIMIT_S)
    assert b"planted-argument" in answers
    (folder,) = temporary.iterdir()
    assert folder.name.startswith("mcp-probe-")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    left = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {path.split("/")[0] for path in left} <= {"alive", "processes", "inject"}
    words = (b"planted_tool", b"planted-argument", b"tools/call")
    own = [path for name, path in left.items() if not name.startswith("inject/mcp_probe/")]
    assert [path for path in own if any(word in path.read_bytes() for word in words)] == []
