"""What Tab gives after `mcp-probe …`, asked of the shells themselves."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mcp_probe import cli
from mcp_probe.completion import SHELLS, commands_of, script


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    for shell in SHELLS:
        (tmp_path / f"mcp-probe.{shell}").write_text(script(cli._parser(), shell))
    (tmp_path / "calls.jsonl").touch()
    return tmp_path


def bash(folder: Path, *words: str) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in ("mcp-probe", *words))
    ask = f"source mcp-probe.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _mcp_probe"
    ask += "; printf '%s\\n' \"${COMPREPLY[@]}\""
    return run([shutil.which("bash") or "bash", "--norc", "-c", ask], folder)


def fish(folder: Path, *words: str) -> list[str]:
    ask = f"source mcp-probe.fish; complete -C 'mcp-probe {' '.join(words)}'"
    return [line.split("\t")[0] for line in run(["fish", "--no-config", "-c", ask], folder)]


def run(command: list[str], folder: Path) -> list[str]:
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def zsh(folder: Path, typed: str, awaited: str) -> str:
    """What a zsh on a terminal shows once ``typed`` was typed; read until ``awaited`` is there."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", HOME=str(folder), ZDOTDIR=str(folder), PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, b"autoload -Uz compinit; compinit -u -D; source ./mcp-probe.zsh; print LOAD''ED\n")
        read_until(terminal, "LOADED")
        os.write(terminal, typed.encode())
        return read_until(terminal, awaited)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def read_until(terminal: int, awaited: str) -> str:
    shown, limit = "", time.monotonic() + 30
    while awaited not in shown.replace("\r", ""):
        ready, _, _ = select.select([terminal], [], [], max(0.0, limit - time.monotonic()))
        assert ready, f"{awaited!r} never came: {shown!r}"
        shown += os.read(terminal, 4096).decode("utf-8", "replace")
    return shown


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
needs_fish = pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")


@needs_bash
def test_bash_completes_commands_options_values_and_files(scripts: Path) -> None:
    names = [command.name for command in commands_of(cli._parser())]
    assert bash(scripts, "") == [*names, "--help", "--version"]
    assert bash(scripts, "comp") == ["compare", "completion"]
    assert bash(scripts, "run", "--mem") == ["--memory"]
    assert bash(scripts, "run", "--memory", "") == ["off", "light", "detailed", "leaks"]
    assert bash(scripts, "report", "cal") == ["calls.jsonl"]
    assert bash(scripts, "run", "--record", "cal") == ["calls.jsonl"]
    assert bash(scripts, "completion", "") == list(SHELLS)
    assert bash(scripts, "demo", "--seconds", "") == []


@needs_bash
def test_bash_completes_what_comes_after_the_dashes_as_a_command_of_its_own(scripts: Path) -> None:
    assert "ls" in bash(scripts, "run", "--", "ls")
    assert bash(scripts, "run", "--", "cat", "cal") == ["calls.jsonl"]
    assert bash(scripts, "run", "--", "cat", "--mem") == []


@needs_fish
def test_fish_completes_commands_options_values_and_files(scripts: Path) -> None:
    names = [command.name for command in commands_of(cli._parser())]
    assert set(names) <= set(fish(scripts, ""))
    assert fish(scripts, "run", "--mem") == ["--memory"]
    assert set(fish(scripts, "run", "--memory", "")) >= {"off", "light", "detailed", "leaks"}
    assert "calls.jsonl" in fish(scripts, "report", "cal")
    assert set(fish(scripts, "completion", "")) >= set(SHELLS)
    assert "calls.jsonl" in fish(scripts, "run", "--", "cat", "cal")


@needs_zsh
def test_zsh_completes_commands_options_values_and_files(scripts: Path) -> None:
    assert "mcp-probe completion" in zsh(scripts, "mcp-probe completi\t", "completion ")
    assert "--memory" in zsh(scripts, "mcp-probe run --mem\t", "--memory ")
    assert "detailed" in zsh(scripts, "mcp-probe run --memory deta\t", "detailed ")
    assert "calls.jsonl" in zsh(scripts, "mcp-probe report cal\t", "calls.jsonl ")


@needs_zsh
def test_zsh_completes_what_comes_after_the_dashes_as_a_command_of_its_own(scripts: Path) -> None:
    assert "calls.jsonl" in zsh(scripts, "mcp-probe run -- cat cal\t", "calls.jsonl ")


def test_every_option_of_every_command_is_in_every_script() -> None:
    parser = cli._parser()
    for shell in SHELLS:
        text = script(parser, shell)
        for command in commands_of(parser):
            for option in command.options:
                assert all(name.lstrip("-") in text for name in option.names), (shell, command.name, option.names)


def test_help_that_has_quotes_brackets_and_colons_stays_one_word(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser(prog="mcp-probe")
    one = parser.add_subparsers().add_parser("one", help="it's [one]: `two`")
    one.add_argument("--odd", metavar="FILE", help="it's [odd]: $(touch made) \\ `touch made`")
    for shell in SHELLS:
        (tmp_path / f"mcp-probe.{shell}").write_text(script(parser, shell))
        if shutil.which(shell):
            run(
                [
                    shell,
                    "-c",
                    f"{'autoload -Uz compinit; compinit -u -D; ' if shell == 'zsh' else ''}source ./mcp-probe.{shell}",
                ],
                tmp_path,
            )
    assert not (tmp_path / "made").exists()


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["completion", "tcsh"])
    assert ended.value.code == cli.BAD_USE
    assert re.search("bash.*zsh.*fish", capsys.readouterr().err)
