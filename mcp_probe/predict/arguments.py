"""The options of ``mcp-probe what-if``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from mcp_probe.arguments import Declared
from mcp_probe.predict.change import Change, Kind

_EXAMPLES = """\
examples:
  mcp-probe run --record calls.jsonl --full -- python server.py
  mcp-probe what-if calls.jsonl                                 is the recording good enough, and what is its limit?
  mcp-probe what-if calls.jsonl --offload resize                its blocking steps on threads
  mcp-probe what-if calls.jsonl --pool httpx=20 --rate 2x       a larger pool, under twice the load
"""


_Parse = Callable[[str], Change]


def _named(kind: Kind) -> _Parse:
    def parse(text: str) -> Change:
        return Change(kind, text)

    return parse


def _counted(kind: Kind) -> _Parse:
    def parse(text: str) -> Change:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal() or not 1 <= int(number) <= 100_000:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a name and a number from 1 on, such as `default=80`.")
        return Change(kind, name, int(number))

    return parse


def _share(text: str) -> Change:
    name, _, number = text.rpartition("=")
    try:
        value = float(number.removesuffix("%")) / 100
    except ValueError:
        value = 0.0
    if not name or not number.endswith("%") or not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a tool and a share of its time, such as `search=50%`.")
    return Change("speed-up", name, value)


def _factor(text: str) -> Change:
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a factor from 0.01 to 100, such as `2x`.")
    return Change("rate", "", value)


_OPTIONS: tuple[tuple[str, str, _Parse, str], ...] = (
    (
        "--offload",
        "TOOL",
        _named("offload"),
        "its blocking steps become jobs on threads; what computes keeps the GIL",
    ),
    (
        "--pool",
        "NAME=N",
        _counted("pool"),
        "a pool of threads or connections, or a semaphore, has N places",
    ),
    ("--private-pool", "TOOL=N", _counted("private-pool"), "its jobs get N threads of their own"),
    ("--gather", "TOOL", _named("gather"), "its alike awaits run side by side"),
    ("--narrow", "LOCK", _named("narrow"), "nothing is awaited any more while the lock is held"),
    ("--share-client", "TOOL", _named("share-client"), "it makes no client and opens no connection of its own"),
    (
        "--speed-up",
        "TOOL=N%",
        _share,
        "all it does itself takes N %% less: steps, jobs, and awaits outside",
    ),
    (
        "--rate",
        "Nx",
        _factor,
        "N times the load: more often where clients do not wait for answers, more clients where they do",
    ),
)


def _add_what_if(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a recording made with --full")
    parser.set_defaults(changes=[])
    group = parser.add_argument_group("changes, several at once, in this order")
    for option, metavar, parse, help in _OPTIONS:
        group.add_argument(option, metavar=metavar, dest="changes", action="append", type=parse, help=help)
    parser.add_argument(
        "--arrivals",
        choices=("open", "closed"),
        help="whether clients send at times of their own, or once they have answers (default: as it looks)",
    )
    parser.add_argument("--json", metavar="FILE", help="write figures to FILE as JSON, too; `-` = print only that")


WHAT_IF = Declared(
    help="say what a change would give, before it is made",
    description="Runs a full recording again as a simulation, with changes, and says how long calls would take. "
    "Refuses where the simulation does not give what was measured.",
    options=_add_what_if,
    usage="mcp-probe what-if FILE [changes] [options]",
    examples=_EXAMPLES,
)
