"""How much RAM this process has, as the kernel counts it: an independent count beside the probe's."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

RU_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PEAK_ONLY = "5"
"""Source: proc_pid_clear_refs(5): resets the peak, and nothing else."""


def peak_bytes() -> int:
    """The most since :func:`restart_peak`; since the process began where that cannot be done."""
    return kernel_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RU_MAXRSS_BYTES


def restart_peak() -> int | None:
    """Forgets the peak and says what there is now; ``None`` where the kernel does not offer it."""
    with suppress(OSError):
        _CLEAR.write_text(_PEAK_ONLY)
        return resident_bytes()
    return None


def resident_bytes(pid: int | None = None) -> int | None:
    """How much there is now, of another process with ``pid``; ``None`` where the kernel does not offer it."""
    return kernel_bytes("VmRSS", _STATUS if pid is None else Path(f"/proc/{pid}/status"))


def kernel_bytes(name: str, status: Path = _STATUS) -> int | None:
    """A line of proc_pid_status(5), such as ``VmHWM``; ``None`` where the kernel does not offer it."""
    with suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
