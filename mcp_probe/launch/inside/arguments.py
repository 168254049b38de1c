"""The command line of `mcp-probe attach`."""

from __future__ import annotations

import argparse

from mcp_probe.arguments import Declared, add_fail_on, add_slow_step, file, seconds
from mcp_probe.errors import OptionError
from mcp_probe.launch.arguments import add_otlp, add_record_limit

_EXAMPLES = """\
The server is looked at from outside first: what its event loop does, each task's chain of awaits, its threads. That
needs nothing of it, and changes nothing in it. Then, if it runs on Python 3.14 or newer, the probe is brought into it
(PEP 768), and taken out again at Ctrl-C, after --seconds, or if this command is killed. The report comes then.

Look and report are printed on stdout, everything else on stderr.

examples:
  mcp-probe attach 4711                       look, then profile until Ctrl-C
  mcp-probe attach 4711 --look                only look from outside; any Python from 3.10 on
  mcp-probe attach 4711 --seconds 30 --record calls.jsonl
  mcp-probe attach 4711 --seconds 60 --fail-on critical
"""


def _add_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", metavar="PID", type=_pid, help="the server's process")
    parser.add_argument("--look", action="store_true", help="only look from outside; nothing is injected")
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=seconds(0.1),
        help="detach after N seconds, and wait no longer than that to get in (default: until Ctrl-C)",
    )
    parser.add_argument(
        "--wake",
        action="store_true",
        help="stop and continue the process once (SIGSTOP, SIGCONT) if it does not run Python: that ends a wait for "
        "events. A supervisor may notice",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the summary, with --look what was seen, to FILE as JSON; `-` = print only that",
    )
    parser.add_argument("--html", metavar="FILE", type=file, help="write one page to FILE, too")
    parser.add_argument(
        "--record", metavar="FILE", type=file, help="keep every frame in FILE, for `mcp-probe report FILE`"
    )
    add_record_limit(parser)
    parser.add_argument(
        "--full", action="store_true", default=None, help="with --record: keep what each request did one by one, too"
    )
    parser.add_argument("--memory", choices=("off", "light", "detailed", "leaks"), help="as with `mcp-probe run`")
    parser.add_argument("--measures", choices=("off", "light", "detailed"), help="as with `mcp-probe run`")
    parser.add_argument("--awaits", choices=("on", "off"), help="as with `mcp-probe run`")
    add_otlp(parser)
    add_fail_on(parser, "exit with 1 if one of these findings is raised, or if nothing was measured")
    add_slow_step(parser)


def check(options: argparse.Namespace) -> None:
    """Raises: OptionError for what only a probe in the server could do, with --look."""
    asked = ("seconds", "wake", "html", "record", "record_limit", "full", "otlp", "fail_on")
    given = [f"--{name.replace('_', '-')}" for name in asked if options.look and getattr(options, name)]
    if given:
        raise OptionError(
            f"With --look no probe is brought into the server, so nothing is measured for {', '.join(given)}. "
            "Leave --look out: the look comes first anyway."
        )


def _pid(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 12 else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the number of a process; `pgrep -af python` lists them.")
    return value


ATTACH = Declared(
    help="look into a server that hangs now, and profile it without a restart",
    description="Looks at a running server from outside, then profiles it.",
    options=_add_attach,
    usage="mcp-probe attach PID [options]",
    examples=_EXAMPLES,
)
