"""`mcp-probe load` as a user types it: sentences, exit codes, files."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_probe import cli
from tests.workloads.load.raw import SERVER

COMMAND = shlex.join([sys.executable, str(SERVER)])
SHORT = ["--rate", "200", "--count", "30", "--warm-up", "0", "--in-flight", "0"]


def typed(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["load", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_a_load_that_went_well_ends_with_0_and_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(capfd, "--server", COMMAND, "--tool", "echo", *SHORT)
    assert (code, err) == (0, "")
    assert "keeps up" in out or "cannot be told" in out  # a host that held this process for half a second
    assert "from when due" in out
    assert "30 requests" in out


def test_a_load_with_failures_ends_with_1(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = typed(capfd, "--server", COMMAND, "--tool", "refuse", "--allow-failures", *SHORT)
    assert code == 1
    assert "30 of 30 (100%) failed" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tool", "echo"], "Name a server"),
        (["--server", COMMAND], "Say what to send"),
        (["--server", COMMAND, "--tool", "a", "--mix", "b"], "one of the two"),
        (["--server", COMMAND, "--url", "http://a", "--tool", "a"], "Name one server"),
        (["--server", COMMAND, "--tool", "a", "--arguments", "{"], "--arguments is no JSON"),
        (["--server", COMMAND, "--mix", "missing.toml"], "Cannot read the mix missing.toml"),
        (["--server", COMMAND, "--tool", "a", "--rate", "-1"], "rate is -1"),
        (["--server", COMMAND, "--tool", "a", "--json", "no/such/folder/x"], "Cannot write"),
        (["--server", COMMAND, "--tool", "a", "--header", "x"], "'NAME: VALUE'"),
        (["--server", COMMAND, "--tool", "tea"], "no tool tea; it has echo"),
        (["--server", "no-such-program-here", "--tool", "a"], "does not start"),
        (["--server", COMMAND, "--tool", "a", "--export", "k6"], "A script sends to a URL"),
        (["--url", "http://a/mcp", "--tool", "a", "--export", "k6", "--poisson"], "constant arrivals only"),
        (["--url", "http://127.0.0.1:1/mcp", "--tool", "a", "--profile"], "mcp-probe run"),
    ],
)
def test_bad_use_is_a_sentence_and_2(capfd: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = typed(capfd, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("mcp-probe: ")


def test_a_mix_file_can_name_the_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mix = tmp_path / "mix.toml"
    mix.write_text(
        f"server = {json.dumps(COMMAND)}\nrate = 200\ncount = 30\nwarm_up = 0\nin_flight = 0\n"
        "[[call]]\ntool = 'echo'\nweight = 2\n[[call]]\nmethod = 'tools/list'\n"
    )
    code, out, _ = typed(capfd, "--mix", str(mix), "--json", str(tmp_path / "out.json"))
    read = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    assert "By operation" in out
    assert {row["name"] for row in read["operations"]} == {"echo", "tools/list"}
    assert sum(row["due"] for row in read["operations"]) == 30


def test_json_alone_can_be_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = typed(capfd, "--server", COMMAND, "--tool", "echo", "--json", "-", *SHORT)
    assert code == 0
    assert json.loads(out)["open"]["fates"]["ok"] == 30


def test_a_script_is_written_where_it_was_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export = ["--url", "http://a/mcp", "--tool", "echo", "--export", "locust"]
    assert typed(capfd, *export, "--to", str(tmp_path / "locustfile.py")) == (0, "", "")
    code, out, _ = typed(capfd, *export)
    assert code == 0
    assert out == (tmp_path / "locustfile.py").read_text()


def test_ctrl_c_ends_a_load_early_and_keeps_what_is_done(tmp_path: Path) -> None:
    """The server touches a file at its 20th call, and then the load gets its Ctrl-C."""
    mark = tmp_path / "twenty"
    script = tmp_path / "server.py"
    text = SERVER.read_text().replace(
        "counts[name] = counts.get(name, 0) + 1",
        f'counts[name] = counts.get(name, 0) + 1\n    if counts[name] == 20:\n        open({str(mark)!r}, "w").close()',
        1,
    )
    script.write_text(text)
    command = [sys.executable, "-m", "mcp_probe", "load", "--server", shlex.join([sys.executable, str(script)])]
    process = subprocess.Popen(
        [*command, "--tool", "echo", "--rate", "50", "--seconds", "3600", "--warm-up", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        while not mark.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (0, 1), err  # 1: what was in flight at that moment was given up
    assert "Interrupted" in out
    assert "from when due" in out


def test_the_example_mix_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[3] / "examples" / "load.toml"
    server = shlex.join([sys.executable, "-m", "mcp_probe.workloads.demo_server"])
    code, out, err = typed(capfd, "--mix", str(example), "--server", server, "--count", "20", "--in-flight", "0")
    assert code == 0, err
    assert "20 requests" in out
    assert "By operation" in out
