"""One run of a real server, bare or under `mcp-probe run`, asked by the SDK's own client over real stdio."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from mcp_probe.model import RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.client import stdio_client_session
from tests.field.servers import RealServer, Setting

ROOT = Path(__file__).resolve().parent.parent.parent
# Writes how the command ended into the file named first: the SDK's client keeps that to itself.
_KEEP_EXIT_CODE = ["/bin/sh", "-c", 'code=$1; shift; "$@"; echo $? > "$code"', "sh"]
_TODAY = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|"day_of_week": *"\w+"')


@dataclass(frozen=True)
class Run:
    """What came of it. ``answers`` are (tool, failed, text), sorted, moments of the day taken out."""

    answers: list[tuple[str, bool, str]]
    exit_code: int
    stderr: str


@dataclass(frozen=True)
class ProbedRun(Run):
    """The same under the probe, with all that it left."""

    summary: dict[str, Any]
    records: list[RequestRecord]
    recording: Path


def run_bare(server: RealServer, setting: Setting, folder: Path) -> Run:
    return _run(server.command(ROOT, setting), setting, folder / "bare", rounds=1)


def run_probed(server: RealServer, setting: Setting, folder: Path, *, rounds: int = 1) -> ProbedRun:
    """``rounds`` of what is asked, under the command a user would write."""
    summary, recording = folder / "summary.json", folder / "recording.jsonl"
    options = ["--json", str(summary), "--record", str(recording)]
    probe = [sys.executable, "-m", "mcp_probe", "run", *options, "--"]
    run = _run([*probe, *server.command(ROOT, setting)], setting, folder / "probed", rounds=rounds)
    records = [frame for frame in read_recording(recording) if isinstance(frame, RequestRecord)]
    return ProbedRun(run.answers, run.exit_code, run.stderr, json.loads(summary.read_text("utf-8")), records, recording)


def _run(command: Sequence[str], setting: Setting, files: Path, *, rounds: int) -> Run:
    stderr, code = files.with_suffix(".stderr"), files.with_suffix(".code")
    # As a user's shell would have it; above all nothing on PYTHONPATH that the server could find mcp_probe through.
    environment = {"PYTHONPATH": "", "NO_COLOR": "1", "CI": "", **setting.environment}

    async def talk() -> list[tuple[str, bool, str]]:
        with stderr.open("w", encoding="utf-8") as errors:
            wrapped = [*_KEEP_EXIT_CODE, str(code), *command]
            async with stdio_client_session(wrapped, environment=environment, stderr=errors) as session:
                for _ in range(rounds):
                    await setting.ask(session)
                return sorted(
                    (answer.operation, answer.error is not None, _timeless(answer.error or answer.text))
                    for answer in session.answers
                )

    answers = anyio.run(talk)
    return Run(answers, int(code.read_text()), stderr.read_text("utf-8"))


def _timeless(text: str) -> str:
    return _TODAY.sub("…", text)
