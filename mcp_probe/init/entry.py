"""How a server's command becomes one that starts it under the probe, and which commands cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from mcp_probe.errors import LaunchError
from mcp_probe.init.clients import Entry

_JAVASCRIPT = frozenset({"npx", "node", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "tsx", "ts-node"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_WINDOWS = frozenset({"cmd", "powershell", "pwsh", "wsl"})
_OF_UVX = frozenset({"archive-v0", "builds-v0", "environments-v1", "environments-v2"})
_DISTRIBUTION = "mcp-probe-profiler"

HTTP_SENTENCE = (
    "The client does not start a server that it reaches by a URL. Put the probe before the command that does: "
    "mcp-probe run -- COMMAND"
)


def probe_command() -> list[str]:
    """Full path of what starts mcp-probe from anywhere, and its first arguments.

    An environment that `uvx` made for this one call may be gone tomorrow, so `uvx` is to make it again then.
    """
    if _OF_UVX & set(Path(sys.prefix).parts):
        return [shutil.which("uvx") or "uvx", "--from", _DISTRIBUTION, "mcp-probe"]
    script = Path(sysconfig.get_path("scripts"), "mcp-probe")
    if script.is_file():
        return [str(script)]
    return [sys.executable, "-m", "mcp_probe"]


def why_not(command: str) -> str | None:
    """Why `mcp-probe run` cannot profile what ``command`` starts; ``None`` where it may."""
    name = program_name(command)
    if name in _JAVASCRIPT:
        return f"`{name}` starts a JavaScript program. The probe profiles servers in Python"
    if name in _CONTAINERS:
        return (
            f"`{name}` starts it in a container, where the probe must be, too: docs/getting-started.md, In a container"
        )
    if (
        name in _WINDOWS
        or re.match(r"[A-Za-z]:[\\/]|\\\\", command)
        or command.lower().endswith((".exe", ".cmd", ".bat"))
    ):
        return "it is a command of Windows. `mcp-probe run` needs Linux or macOS; there, use mcp_probe.attach(server)"
    return None


def program_name(command: str) -> str:
    path = PureWindowsPath(command) if "\\" in command else PurePosixPath(command)
    return re.sub(r"\.(exe|cmd|bat)$", "", path.name.lower())


def is_probed(command: str, args: Sequence[str]) -> bool:
    """Whether the probe stands before this server already."""
    words = [command, *args]
    for at, word in enumerate(words):
        is_module = words[at : at + 2] == ["-m", "mcp_probe"]
        if program_name(word) == "mcp-probe" or is_module:
            return "run" in words[at + 1 : at + 3]
    return False


def probed(entry: Entry, reports: Path) -> Entry:
    """``entry`` with the probe before its command; the report and the recording go into ``reports``."""
    probe = probe_command()
    stem = re.sub(r"[^\w.-]+", "-", entry.name).strip("-.") or "server"
    files = ["--output", str(reports / f"{stem}.txt"), "--record", str(reports / f"{stem}.jsonl")]
    args = (*probe[1:], "run", *files, "--", entry.command, *entry.args)
    return Entry(entry.name, probe[0], args, entry.env)


def entry_of(name: str, command: Sequence[str]) -> Entry:
    """The server that ``command`` starts from this folder, as one that starts from any.

    The program, and arguments that are files here, get their full paths; a virtual environment stays the one it is.

    Raises: LaunchError where it cannot be found, or cannot be profiled.
    """
    from mcp_probe.launch.parent import find_program

    if not command:
        raise LaunchError("No command was given. Expected one after `--`: mcp-probe init -- python server.py")
    if re.match(r"https?://", command[0]):
        raise LaunchError(f"{command[0]} is a URL. {HTTP_SENTENCE}")
    reason = why_not(command[0])
    if reason is not None:
        raise LaunchError(f"{command[0]} cannot be profiled: {reason}.")
    program = _without_shim(os.path.abspath(find_program(command)))
    args = tuple(os.path.abspath(each) if _is_place_here(each) else each for each in command[1:])
    return Entry(name, program, args, _search_path(command))


def _without_shim(program: str) -> str:
    """pyenv, asdf and mise choose a Python by the folder it is started in, and a client starts it in another."""
    if Path(program).parent.name != "shims" or not program_name(program).startswith("python"):
        return program
    ask = [program, "-c", "import sys; print(sys.executable)"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return program
    return told if os.path.isfile(told) else program


def _is_place_here(argument: str) -> bool:
    if os.path.isabs(argument) or argument.startswith("-"):
        return False
    return os.path.isfile(argument) or (os.path.isdir(argument) and (os.sep in argument or argument in {".", ".."}))


def _search_path(command: Sequence[str]) -> dict[str, str]:
    """`python -m NAME` looks into the folder it is started in; a client starts it in another."""
    if program_name(command[0]).startswith(("python", "pypy")) and "-m" in command[:-1]:
        package = command[command.index("-m") + 1].split(".")[0]
        if os.path.isdir(package) or os.path.isfile(f"{package}.py"):
            return {"PYTHONPATH": os.getcwd()}
    return {}


def name_of(command: Sequence[str]) -> str:
    """What a server is called where nobody has said it: by its script, module or program."""
    words = [word for word in command[1:] if not word.startswith("-")]
    if program_name(command[0]).startswith(("python", "pypy", "uv", "env")):
        words = [word for word in words if word not in {"run", "tool", "python", "python3"} and "=" not in word]
        if words:
            return Path(words[0]).name.removesuffix(".py")
    return Path(command[0]).name
