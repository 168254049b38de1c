"""Diagnosing the interpreter behind a command, without running its server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.launch.doctor import diagnose_command
from tests.launch.running import program


def test_hooks_of_the_commands_interpreter_are_told_and_its_program_never_starts(tmp_path: Path) -> None:
    started = tmp_path / "started"
    found = diagnose_command(program(tmp_path, f"open({str(started)!r}, 'w')"))
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert "active" in found.hooks.values()
    assert not started.exists()


def test_a_command_that_is_no_python_program_is_told_so() -> None:
    with pytest.raises(LaunchError, match="never loaded the probe"):
        diagnose_command(["/bin/sh", "-c", "exit 0"])


def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(LaunchError, match="It was ended after"):
        diagnose_command(["/bin/sh", "-c", "exec sleep 1000"], limit_s=0.05)


@pytest.mark.parametrize("tier", ["light", "detailed", "off"])
def test_the_tier_of_memory_and_its_back_end_are_told(
    tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_PROBE_MEMORY", tier)
    told = diagnose_command(program(tmp_path, "")).hooks
    back_end = {"light": "native-hybrid", "detailed": "native-shadow"}.get(tier)
    if tier == "off":
        assert told["memory"] == "does not apply: switched off"
    elif told["accelerator"] == "active":
        assert told["memory"].startswith(f"active ({tier}: {back_end}, all Python allocations")
    else:
        assert told["memory"].startswith(f"active ({tier}: ")
        assert "no accelerator" in told["memory"]


def test_a_ctrl_c_ends_the_command_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not in our process group, so nobody else would."""
    begun: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if process not in begun:
            begun.append(process)
            raise KeyboardInterrupt
        return real(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        diagnose_command(["/bin/sh", "-c", "exec sleep 1000"])
    assert begun[0].wait(30) == -signal.SIGKILL
