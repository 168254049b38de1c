"""What the command lines of several commands share; loads nothing but argparse until they are parsed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcp_probe.errors import OptionError

if TYPE_CHECKING:
    from mcp_probe.aggregate.fail_on import Rule


class Declared(NamedTuple):
    """What the command line says of one command, and takes.

    Attributes:
        help: one line, for the list of commands.
        description: what it does.
        options: adds its options to a parser.
        usage: the line that argparse would not find by itself.
        examples: keep their lines.
        has_looks: it prints, so that width and colours may be chosen.
    """

    help: str
    description: str
    options: Callable[[argparse.ArgumentParser], None]
    usage: str | None = None
    examples: str | None = None
    has_looks: bool = True


def add_fail_on(parser: argparse.ArgumentParser, help: str) -> None:
    """Declares how findings make it exit with 1."""
    what = "items, separated by commas: a severity (critical, warn, info) and all above it; a code; a code with a "
    what += "threshold, such as 'blocking-call>100ms' (quote the `>`)"
    gate = parser.add_argument_group("failing in CI")
    gate.add_argument("--fail-on", metavar="ITEM[,ITEM…]", type=_rules, default=(), help=f"{help}; {what}")
    gate.add_argument(
        "--baseline",
        metavar="FILE",
        type=Path,
        help="JSON report of an earlier run: what --fail-on asks for and FILE has already does not fail",
    )
    gate.add_argument("--junit", metavar="FILE", type=file, help="write what --fail-on checked to FILE as JUnit XML")
    gate.add_argument(
        "--github",
        action=argparse.BooleanOptionalAction,
        help="say on stderr what fails as annotations of GitHub Actions (default: where GITHUB_ACTIONS is true)",
    )


def add_slow_step(parser: argparse.ArgumentParser) -> None:
    """Declares from when on a step is slow."""
    parser.add_argument(
        "--slow-step-ms",
        metavar="N",
        type=milliseconds,
        help="a step this long on the event loop is slow (default: 10)",
    )


def add_looks(parser: argparse.ArgumentParser) -> None:
    """Declares width and colours."""
    parser.add_argument("--width", metavar="N", type=_width, help="columns (default: the terminal's, else 100)")
    parser.add_argument("--no-color", action="store_true", help="no colours, whatever the terminal can show")


def not_stdout(text: str) -> Path:
    """The type of a file that is not `-`: stdout is the server's."""
    if text == "-":
        raise argparse.ArgumentTypeError(
            "`-` would mix it into stdout, which belongs to the server: a stdio server speaks its protocol there. "
            "Name a file."
        )
    return Path(text)


def file(text: str) -> Path:
    """The type of a file that is not `-`."""
    if text == "-":
        raise argparse.ArgumentTypeError("`-`: expected the name of a file; stdout has other content.")
    return Path(text)


def seconds(least: float) -> Callable[[str], float]:
    """The type of a number of seconds, from ``least`` on."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= 1e9:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds from {least:g} on, such as 90.")
        return value

    return parse


def _rules(text: str) -> tuple[Rule, ...]:
    from mcp_probe.aggregate.fail_on import parse_fail_on

    try:
        return parse_fail_on(text)
    except OptionError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def milliseconds(text: str) -> float:
    """The type of a threshold."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.5 <= value <= 3_600_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of milliseconds from 0.5 to 3600000.")
    return value


def _width(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 60:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of columns, at least 60.")
    return value
