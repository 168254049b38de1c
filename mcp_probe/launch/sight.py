"""What `mcp-probe doctor` finds out in the interpreter that serves: which hooks take hold, what each loop shows."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from mcp_probe import native
from mcp_probe.adapters.trials import LOOPS, SDK, WEB_SERVERS, make_server, run_on
from mcp_probe.session import Probe

PACKAGES = ("mcp", "fastmcp", "anyio", "uvicorn", "hypercorn", "uvloop", "trio")


@dataclass(frozen=True, slots=True)
class Facts:
    """One interpreter. What a hook or a loop shows is a state or a tag, else a sentence that says why not."""

    python: str = ""
    executable: str = ""
    system: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    loops: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each loop that can be had: ``steps``, ``wake_ups``, ``sockets`` and ``polls``, each with its tag."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """What cannot be seen here, and why: loops, ``requests``, ``run queue``, ``sockets``."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class LookingProbe(Probe):
    """A probe of a class of its own: a fault of ours is a fact here, and must not be hidden."""


def look() -> Facts:
    """Attaches a probe to a server that never runs, follows each loop for a moment, and takes all off again.

    Main thread only, and no loop may run on it: loops are run here.
    """
    packages = {name: version for name in PACKAGES if (version := _version(name))}
    absent = dict(_system_lacks())
    probe = LookingProbe()
    try:
        hooks = probe._hub.hooks
        for module in SDK:
            if "mcp" in packages and (fault := _fault_of(partial(import_module, module))):
                hooks[module] = f"cannot be imported: {fault}"
        for module in WEB_SERVERS:
            if module.split(".")[0] in packages:
                _fault_of(partial(import_module, module))
        if fault := _attach(probe, packages):
            absent["requests"] = fault
        loops = {}
        for name in LOOPS:
            found = _follow(probe, name, packages)
            if isinstance(found, str):
                absent[name] = found
            else:
                loops[name] = found
        hooks.pop("loop polls", None)  # each loop has its own
        states = {**hooks, "accelerator": native.state()}
        return Facts(
            python=platform.python_version(),
            executable=sys.executable,
            system=f"{platform.system()} {platform.machine()}",
            packages=packages,
            hooks=dict(sorted(states.items())),
            loops=loops,
            absent=absent,
        )
    finally:
        probe.detach()


def _version(package: str) -> str:
    try:
        return metadata.version(package) if find_spec(package) is not None else ""
    except (ImportError, ValueError, metadata.PackageNotFoundError):
        return ""


def _fault_of(act: Callable[[], object]) -> str:
    """What ``act`` raised, in a few words; a broken package is a finding here, not a fault."""
    try:
        act()
    except Exception as exc:  # noqa: BLE001 - see above
        return f"{type(exc).__name__}: {exc}"
    return ""


def _attach(probe: Probe, packages: Mapping[str, str]) -> str:
    if "mcp" not in packages:
        return "this Python has no package mcp"

    def attach() -> None:
        probe.attach(make_server())

    return _fault_of(attach)


def _follow(probe: Probe, name: str, packages: Mapping[str, str]) -> dict[str, str] | str:
    """What loop ``name`` shows, or why it shows nothing."""
    if name != "asyncio" and name not in packages:
        return f"{name} is not installed"
    seen: dict[str, str] = {}

    async def follow() -> None:
        monitor = probe._hooks.loops.follow()
        if monitor is not None:
            seen.update(monitor.sees._asdict())

    fault = _fault_of(partial(run_on, name, follow))
    return fault or seen or "no hook fits this loop"


def _system_lacks() -> Mapping[str, str]:
    if not sys.platform.startswith("linux"):
        return {"run queue": "only Linux counts it", "sockets": "only Linux says when bytes came (TCP_INFO)"}
    return {} if os.path.exists("/proc/self/schedstat") else {"run queue": "this kernel has no /proc/self/schedstat"}
