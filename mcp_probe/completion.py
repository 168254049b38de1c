"""Scripts that complete `mcp-probe` in bash, zsh and fish, made from its parser.

They are static: pressing Tab starts no Python. What comes after `--` is another program's, and is completed as such.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_probe.arguments import Declared

SHELLS = ("bash", "zsh", "fish")

_EXAMPLES = """\
examples:
  source <(mcp-probe completion bash)                                     in ~/.bashrc
  source <(mcp-probe completion zsh)                                      in ~/.zshrc, after `compinit`
  mcp-probe completion fish > ~/.config/fish/completions/mcp-probe.fish
"""

_FILES = frozenset({"FILE", "FOLDER", "BEFORE", "AFTER"})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, what may follow it, and what it says of itself."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...] = ()
    is_file: bool = False
    takes_value: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the parser, with what may stand where no option does."""

    name: str
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...] = ()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What ``shell`` (one of :data:`SHELLS`) must read to complete the commands and options of ``parser``."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands_of(parser))


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """Every command that ``parser`` has, in its order."""
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in group._choices_actions}
    return [
        Command(name, _one_line(helps.get(name, "")), tuple(_options(each)), _positional_choices(each))
        for name, each in group.choices.items()
    ]


def _options(parser: argparse.ArgumentParser) -> list[Option]:
    return [
        Option(
            tuple(action.option_strings),
            _one_line(action.help or ""),
            tuple(map(str, action.choices or ())),
            _names_files(action),
            action.nargs != 0,
        )
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]


def _names_files(action: argparse.Action) -> bool:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return metavar in _FILES


def _positional_choices(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    actions = [action for action in parser._actions if not action.option_strings]
    return tuple(str(choice) for action in actions for choice in action.choices or ())


def _one_line(text: str) -> str:
    return re.sub(r"%\([^)]*\)s", "", " ".join(text.split())).split(";")[0]


# --- bash -------------------------------------------------------------------------------------------------------------

_BASH = """\
# bash completion for mcp-probe; made by `mcp-probe completion bash`
_mcp_probe_files() {{  # bash 3.2 of macOS has no compopt
    compopt -o default 2> /dev/null || COMPREPLY=($(compgen -f -- "$current"))
}}
_mcp_probe() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${{COMP_WORDS[at]}} == -- ]]; then
            if declare -F _command_offset > /dev/null; then _command_offset $((at + 1)); return; fi
            if ((COMP_CWORD == at + 1)); then COMPREPLY=($(compgen -c -- "$current")); return; fi
            _mcp_probe_files; return
        fi
        [[ -z $command && ${{COMP_WORDS[at]}} != -* ]] && command=${{COMP_WORDS[at]}}
    done
    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$current"))
        return
    fi
    case "$command $previous" in
{values}
    esac
    if [[ $current == -* ]]; then
        case $command in
{options}
        esac
        return
    fi
    case $command in
{positionals}
        *) _mcp_probe_files ;;
    esac
}}
complete -F _mcp_probe mcp-probe
"""


def _bash(commands: Sequence[Command]) -> str:
    values, options, positionals = [], [], []
    for command in commands:
        names = [name for option in command.options for name in option.names]
        ends = ["--"] if command.name in {"run", "init", "doctor"} else []
        options.append(_bash_case(command.name, [*names, *ends], " " * 12))
        if command.choices:
            positionals.append(_bash_case(command.name, command.choices, " " * 8))
        for option in command.options:
            patterns = "|".join(f'"{command.name} {name}"' for name in option.names)
            if option.choices:
                words = " ".join(option.choices)
                values.append(f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return ;;')
            elif option.is_file:
                values.append(f"        {patterns}) _mcp_probe_files; return ;;")
            elif option.takes_value:
                values.append(f"        {patterns}) return ;;")
    listed = " ".join(command.name for command in commands)
    joined = ("\n".join(each) for each in (values, options, positionals))
    return _BASH.format(commands=listed, **dict(zip(("values", "options", "positionals"), joined, strict=True)))


def _bash_case(pattern: str, words: Sequence[str], indent: str) -> str:
    return f'{indent}{pattern}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$current")) ;;'


# --- zsh --------------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef mcp-probe
# zsh completion for mcp-probe; made by `mcp-probe completion zsh`
_mcp_probe() {{
    local context state state_descr line at
    typeset -A opt_args
    at=${{words[(i)--]}}
    if ((at < CURRENT)); then
        shift $at words
        ((CURRENT -= at))
        _normal
        return
    fi
    local -a commands=(
{commands}
    )
    _arguments -C '(- *)--help[show help]' '(- *)--version[print the version]' \\
        '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe command commands ;;
        argument)
            case $words[1] in
{cases}
            esac ;;
    esac
}}
if [[ $funcstack[1] == _mcp_probe ]]; then _mcp_probe "$@"; else compdef _mcp_probe mcp-probe; fi
"""


def _zsh(commands: Sequence[Command]) -> str:
    listed = "\n".join(f"        {_quoted(f'{command.name}:{command.help}')}" for command in commands)
    cases = []
    for command in commands:
        specs = [_zsh_option(option) for option in command.options]
        rest = f":argument:({' '.join(command.choices)})" if command.choices else "*:file:_files"
        words = " ".join(_quoted(each) for each in [*specs, rest])
        cases.append(f"                {command.name}) _arguments {words} ;;")
    return _ZSH.format(commands=listed, cases="\n".join(cases))


def _zsh_option(option: Option) -> str:
    told = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    names = f"({' '.join(option.names)})" + (option.names[-1] if option.names else "")
    value = ""
    if option.choices:
        value = f":value:({' '.join(option.choices)})"
    elif option.is_file:
        value = ":file:_files"
    elif option.takes_value:
        value = ":value: "
    return f"{names}[{told}]{value}"


def _quoted(text: str) -> str:
    """In single quotes, as POSIX shells read them."""
    return "'" + text.replace("'", "'\\''") + "'"


# --- fish -------------------------------------------------------------------------------------------------------------

_FISH = """\
# fish completion for mcp-probe; made by `mcp-probe completion fish`
function __mcp_probe_before_command
    not contains -- -- (commandline -opc)
end
function __mcp_probe_first
    test (count (commandline -opc)) -eq 1
end
function __mcp_probe_in
    set -l words (commandline -opc)
    __mcp_probe_before_command; and test (count $words) -gt 1; and contains -- $words[2] $argv
end
function __mcp_probe_complete_command
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    complete -C (string join -- ' ' (string escape -- $words[(math $at + 1)..-1]))
end
complete -c mcp-probe -n 'not __mcp_probe_before_command' -f -a '(__mcp_probe_complete_command)'
complete -c mcp-probe -n __mcp_probe_first -f -l help -d 'show help'
complete -c mcp-probe -n __mcp_probe_first -f -l version -d 'print the version'
"""


def _fish(commands: Sequence[Command]) -> str:
    lines = []
    for command in commands:
        lines.append(f"complete -c mcp-probe -n __mcp_probe_first -f -a {command.name} -d {_fish_quoted(command.help)}")
        inside = _fish_quoted(f"__mcp_probe_in {command.name}")
        if command.choices:
            lines.append(f"complete -c mcp-probe -n {inside} -f -a {_fish_quoted(' '.join(command.choices))}")
        for option in command.options:
            lines.append(f"complete -c mcp-probe -n {inside} {_fish_option(option)}")
    return _FISH + "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value: list[str] = []
    if option.choices:
        value = ["-x", "-a", _fish_quoted(" ".join(option.choices))]
    elif option.is_file:
        value = ["-r", "-F"]
    elif option.takes_value:
        value = ["-x"]
    return " ".join([*names, *value, "-d", _fish_quoted(option.help)])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


COMPLETION = Declared(
    help="print what makes a shell complete mcp-probe's commands and options",
    description="Prints a script for SHELL. It calls nothing when you press Tab, so it is fast.",
    options=_add_completion,
    examples=_EXAMPLES,
    has_looks=False,
)
