"""Runs one model in a fresh process, watches it from outside, and reads what it says at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from mcp_probe.aggregate.explain import Seen, explain
from mcp_probe.errors import LaunchError
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.bench.machine import busy_ns, process_ns
from mcp_probe.workloads.servers.resident import resident_bytes

SAMPLE_S = 0.05
WINDOW_NS = 200_000_000
"""CPU maxima are of windows this long; document 003 sampled every 0.5 s, in runs of 10 s and more."""
LIMIT_S = 600.0
"""Bound on one program: ten times what the longest takes on a quiet machine."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the process: instants and CPU times in nanoseconds, of the whole machine too."""

    at_ns: int
    cpu_ns: int | None
    machine_ns: int | None
    rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one process did. Percentages are of one core, but ``system_*``: of all cores; ``None`` = not known here."""

    said: dict[str, Any]
    seconds: float
    cpu_seconds: float
    cpu_percent: float
    cpu_percent_max: float | None
    system_percent: float | None
    system_percent_max: float | None
    rss_mb: float | None  # mean over the timed part, 10^6 bytes
    rss_max_mb: float | None
    switches: int  # context switches, both kinds

    @classmethod
    def of(cls, said: dict[str, Any], samples: Sequence[Sample]) -> ModelRun:
        """Puts together what the process said of itself and what was seen of it while its clock ran."""
        inside = [one for one in samples if said["began_ns"] <= one.at_ns <= said["ended_ns"]]
        cores = os.cpu_count() or 1
        own, all_of_it = _shares(inside, "cpu_ns"), _shares(inside, "machine_ns")
        held = [one.rss_bytes for one in inside if one.rss_bytes]
        peak_bytes = max(said["rss_peak_bytes"] or 0, said["rss_bytes"] or 0)
        return cls(
            said=said,
            seconds=said["seconds"],
            cpu_seconds=said["cpu_seconds"],
            cpu_percent=100 * said["cpu_seconds"] / said["seconds"],
            cpu_percent_max=_percent(max(own, default=None)),
            system_percent=_percent(_share(inside, "machine_ns"), cores),
            system_percent_max=_percent(max(all_of_it, default=None), cores),
            rss_mb=sum(held) / len(held) / 1e6 if held else (said["rss_bytes"] or 0) / 1e6 or None,
            rss_max_mb=max([peak_bytes, *held]) / 1e6 or None,
            switches=said["switches_voluntary"] + said["switches_involuntary"],
        )


def _percent(share: float | None, cores: int = 1) -> float | None:
    return None if share is None else 100 * share / cores


def _share(samples: Sequence[Sample], field: str) -> float | None:
    """Cores in use from the first sample to the last."""
    known = [(one.at_ns, getattr(one, field)) for one in samples if getattr(one, field) is not None]
    if len(known) < 2:
        return None
    (since_ns, before), (until_ns, after) = known[0], known[-1]
    return float((after - before) / (until_ns - since_ns))


def _shares(samples: Sequence[Sample], field: str) -> list[float]:
    """As :func:`_share`, of every window; none where the run was shorter than one."""
    step = max(1, round(WINDOW_NS / 1e9 / SAMPLE_S))
    windows = [samples[start : start + step + 1] for start in range(len(samples) - step)]
    return [share for window in windows if (share := _share(window, field)) is not None]


async def run_model(module: str, *arguments: object) -> ModelRun:
    """Runs ``python -m module arguments`` and watches it.

    Raises: LaunchError where it fails, with its last words, or takes longer than :data:`LIMIT_S`.
    """
    return ModelRun.of(*await _run(module, arguments))


async def ask_model(module: str, *arguments: object) -> dict[str, Any]:
    """As :func:`run_model`, for programs that time nothing: what it printed."""
    return (await _run(module, arguments))[0]


async def explain_model(module: str, *arguments: object) -> tuple[Seen, str]:
    """Runs the model once more with ``--record``: what the probe saw, and its sentence. Its times are not for use."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-bench-") as folder:
        recording = Path(folder, "recording.jsonl")
        await _run(module, [*arguments, "--record", recording])
        seen = Seen.of(list(read_recording(recording)), None, None)
    return seen, explain(seen)


async def explain_models(module: str, wanted: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """The probe's sentence for each command line, by its key; all at once, since nothing of it is timed."""
    found: dict[str, str] = {}

    async def one(key: str, arguments: Sequence[object]) -> None:
        found[key] = (await explain_model(module, *arguments))[1]

    async with anyio.create_task_group() as group:
        for key, arguments in wanted.items():
            group.start_soon(one, key, arguments)
    return found


async def _run(module: str, arguments: Sequence[object]) -> tuple[dict[str, Any], list[Sample]]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment_without_proxies()
        )
        samples: list[Sample] = []
        try:
            with anyio.fail_after(LIMIT_S):
                await _watch(process, samples)
        except TimeoutError:
            raise LaunchError(f"{' '.join(command[1:])} took longer than {LIMIT_S:.0f} s.") from None
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        out.seek(0)
        err.seek(0)
        text, said = out.read().decode(), err.read().decode(errors="replace")
    if process.returncode != 0:
        words = " ".join(said.split())[-500:] or "nothing"
        raise LaunchError(f"{' '.join(command[1:])} ended with status {process.returncode}; on stderr it said: {words}")
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found, samples


async def _watch(process: Process, samples: list[Sample]) -> None:
    async def look() -> None:
        while True:
            samples.append(_look(process.pid))
            await anyio.sleep(SAMPLE_S)

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        await process.wait()
        group.cancel_scope.cancel()


def _look(pid: int) -> Sample:
    return Sample(time.perf_counter_ns(), process_ns(pid), busy_ns(), resident_bytes(pid))


def environment_without_proxies() -> dict[str, str]:
    """This process's environment; what the models talk to is on this machine."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
