"""The report of a server that ends, on every Python that is here: rendered elsewhere, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_probe.report import exit_report
from tests.report.summaries import SUMMARIES

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import asyncio
from mcp_probe.session import Probe

probe = Probe(report="stderr")

@probe.profile
async def lookup():
    asyncio.get_running_loop().slow_callback_duration = 60.0  # in its debug mode asyncio itself tells of late steps
    await asyncio.sleep(0.001)

asyncio.run(lookup())
"""


def pythons() -> list[str]:
    """This one, those on PATH, and those that stand beside this one."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(10, 15):
        beside = sorted(Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python"))
        on_path = shutil.which(f"python3.{minor}")
        for candidate in [str(path) for path in beside] + ([on_path] if on_path else []):
            probe = [candidate, "-c", f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"]
            if (3, minor) not in found and subprocess.run(probe, capture_output=True).returncode == 0:
                found[3, minor] = candidate
    return list(found.values())


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("python", pythons(), ids=lambda python: Path(python).parents[1].name)
def test_report_at_exit_is_rendered_on_every_python(python: str, tmp_path: Path) -> None:
    """CPython 3.12 starts no thread while it ends. Nothing is left over either: warnings are errors here."""
    program = tmp_path / "lookups.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [python, "-X", "dev", "-W", "error", str(program)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr.startswith("lookups.py ")  # a CI log gets ASCII
    assert "server         asyncio" in ended.stderr
    assert "lookup" in ended.stderr
    assert "Traceback" not in ended.stderr and "Warning" not in ended.stderr


@pytest.mark.parametrize("fault", [OSError("no process left"), RuntimeError("can't fork at interpreter shutdown")])
def test_where_no_interpreter_can_be_started_the_plain_report_is_written_here(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise fault

    monkeypatch.setattr(subprocess, "Popen", refuse)
    target = tmp_path / "report.txt"
    exit_report.report_at_exit(SUMMARIES["healthy"](), str(target), 20)
    assert "Verdict" in target.read_text("utf-8")


def test_a_renderer_that_is_late_is_left_alone_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It writes the report when it is done; nobody waits, and ``-X dev`` does not complain that it still runs."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    target = tmp_path / "report.txt"
    exit_report.report_at_exit(SUMMARIES["healthy"](), str(target), 0.0)
    [renderer] = started
    assert renderer.returncode == 0
    os.waitpid(renderer.pid, 0)
    assert "Verdict" in target.read_text("utf-8")
