"""`make first-minutes`: what a new user types, from `pip install` to the first report and the first page, timed.

Every command stands in the documentation as it is run here; only the package's name gives way to this source's wheel.
The environment is a new one, the home folder is empty, and the server and client are those of docs/getting-started.md.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER_PACKAGES = ROOT / "requirements" / "cell-mcp2.3.txt"
"""What a user with an MCP server has already."""

BUILDS = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
LIMIT_S = 600


class Failed(Exception):
    """A step did not do what the page says; the message has its output."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page, and what must be there afterwards."""

    page: str
    command: str
    shows: str = ""
    """In what it prints."""
    makes: Sequence[str] = field(default_factory=tuple)


STEPS = (
    Step("README.md", "pip install mcp-probe-profiler"),
    Step("docs/getting-started.md", "mcp-probe demo", "Verdict"),
    Step(
        "docs/getting-started.md",
        "python docs/reading/client.py mcp-probe run -- python docs/reading/server.py",
        "resize",
    ),
    Step("docs/clients.md", "mcp-probe init --client cursor --name shop -- python server.py", "mcpServers"),
    Step("docs/clients.md", "mcp-probe report --html page.html ~/.mcp-probe/shop.jsonl", makes=("page.html",)),
)
"""Between the last two the client of the page starts what `init` has printed."""


def run(command: str, folder: Path, environment: dict[str, str]) -> tuple[str, float]:
    """Its output, and seconds. Raises: Failed."""
    begun = time.monotonic()
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    took = time.monotonic() - begun
    if done.returncode:
        raise Failed(f"$ {command}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr, took


def wheel_of_this_source(work: Path) -> Path:
    """Built from what git knows of it, by the locked setuptools."""
    source, out = work / "source", work / "wheel"
    source.mkdir()
    out.mkdir()
    kept = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
    for name in kept:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "mcp_probe", source / "mcp_probe", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    subprocess.run([sys.executable, "-c", BUILDS, out], cwd=source, check=True, capture_output=True, timeout=LIMIT_S)
    (wheel,) = out.iterdir()
    return wheel


def a_new_machine(work: Path) -> tuple[Path, dict[str, str]]:
    """A folder with a server, and the environment of a user who has a virtual environment for it."""
    folder, home, venv = work / "project", work / "home", work / "project" / ".venv"
    home.mkdir()
    shutil.copytree(ROOT / "docs" / "reading", folder / "docs" / "reading")
    shutil.copy(ROOT / "docs" / "reading" / "server.py", folder / "server.py")
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    subprocess.run([base, "-m", "venv", venv], check=True, timeout=LIMIT_S)
    pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "--requirement", SERVER_PACKAGES], check=True, timeout=LIMIT_S)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCP_PROBE", "PYTHON", "CI"))}
    path = os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", "")])
    return folder, {**kept, "HOME": str(home), "PATH": path, "VIRTUAL_ENV": str(venv)}


def check_page(step: Step) -> None:
    text = (ROOT / step.page).read_text("utf-8")
    if step.command not in text:
        raise Failed(f"{step.page} does not show `{step.command}`.")


def start_as_a_client(printed: str, folder: Path, environment: dict[str, str]) -> float:
    """What `init` printed, started by the page's client from another folder, as clients do."""
    (server,) = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["mcpServers"].values()
    words = ["python", str(folder / "docs/reading/client.py"), server["command"], *server["args"]]
    _, took = run(shlex.join(words), Path("/"), {**environment, **server.get("env", {})})
    return took


def walk(work: Path) -> float:
    """All steps, one after the other; seconds of all commands together."""
    wheel = wheel_of_this_source(work)
    folder, environment = a_new_machine(work)
    whole, printed = 0.0, ""
    for step in STEPS:
        check_page(step)
        if step is STEPS[-1]:
            took = start_as_a_client(printed, folder, environment)
            whole += took
            print(f"{took:7.1f} s  (the client starts what init printed, and ends it)")
        command = step.command.replace("mcp-probe-profiler", shlex.quote(str(wheel)))
        printed, took = run(command, folder, environment)
        whole += took
        missing = [name for name in step.makes if not (folder / name).stat().st_size]
        if step.shows not in printed or missing:
            raise Failed(f"$ {command}\nexpected {step.shows or missing} and got:\n{printed}")
        print(f"{took:7.1f} s  {step.command}", flush=True)
    return whole


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="first-minutes-") as work:
            whole = walk(Path(work).resolve())
    except (Failed, OSError, subprocess.SubprocessError) as exc:
        print(f"make first-minutes: {exc}", file=sys.stderr)
        return 1
    machine = f"{os.cpu_count()} processors with a load of {os.getloadavg()[0]:.1f}"
    print(f"{whole:7.1f} s  from `pip install` to the first page, on {machine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
