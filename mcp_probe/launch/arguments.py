"""The command lines of ``mcp-probe run`` and ``mcp-probe doctor``."""

from __future__ import annotations

import argparse

from mcp_probe.arguments import Declared, add_fail_on, add_slow_step, not_stdout
from mcp_probe.errors import OptionError

_EXAMPLES = """\
The command's stdin and stdout stay untouched, so any MCP client can start it in place of the server. It may be
a console script of another environment, `python server.py`, `uv run …` or a shell script; mcp_probe need not be
installed where the server lives. The report comes on stderr when the command ends, however it ends.
`mcp-probe run` then exits as the command did: with its exit code, or by the same signal.

Where several processes serve MCP (workers), each has a report of its own, in the order in which they connected:
FILE is the first's, FILE.2 the second's, and so on; --html writes one page of them all.

examples:
  mcp-probe run -- python server.py
  mcp-probe run --output report.txt --json report.json -- uvx mcp-server-time
  (cat session.jsonl; sleep 5) | mcp-probe run --fail-on blocking-call -- python -m my_server > answers.jsonl
  mcp-probe run --fail-on 'critical,memory-peak>100MB' --junit findings.xml -- python server.py

At the end of its input a server cancels the calls it is still at, so a session from a file needs the pause after it.
"""


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--output", metavar="FILE", type=not_stdout, help="write the report to FILE instead of stderr")
    run.add_argument("--json", metavar="FILE", type=not_stdout, help="write the summary to FILE as JSON, too")
    run.add_argument(
        "--html", metavar="FILE", type=not_stdout, help="write one page to FILE, to be opened in a browser"
    )
    run.add_argument(
        "--record", metavar="FILE", type=not_stdout, help="keep every frame in FILE, for `mcp-probe report FILE`"
    )
    add_record_limit(run)
    run.add_argument(
        "--full", action="store_true", default=None, help="with --record: keep what each request did one by one, too"
    )
    add_fail_on(
        run, "exit with 1 if the command exits with 0 and one of these findings is raised, or if nothing was measured"
    )
    add_slow_step(run)
    _add_live(run)
    run.add_argument(
        "--memory",
        choices=("off", "light", "detailed", "leaks"),
        help="what to measure of each request's memory (default: light); `leaks` finds tools that keep what they "
        "allocate, and makes the server several times slower",
    )
    run.add_argument(
        "--measures",
        choices=("off", "light", "detailed"),
        help="what to read of each request besides (default: light); `detailed` adds what takes a system call a step",
    )
    run.add_argument(
        "--awaits",
        choices=("on", "off"),
        help="whether to say what requests wait for while they are suspended: locks, backends, sleeps (default: on)",
    )
    run.add_argument(
        "--resources",
        action="store_true",
        default=None,
        help="add probe://report and probe://findings to the server's resources: its clients may read them",
    )
    add_otlp(run)
    run.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _add_live(run: argparse.ArgumentParser) -> None:
    live = run.add_argument_group("while it runs")
    live.add_argument("--live", action="store_true", default=None, help="let `mcp-probe top` watch the server")
    live.add_argument(
        "--flight", metavar="DIR", help="write the last seconds to DIR when a request is slow or a finding is raised"
    )
    live.add_argument("--flight-seconds", metavar="N", help="how many seconds, as far as 4 MB hold them (default: 60)")
    live.add_argument("--flight-factor", metavar="K", help="slow is K times the operation's p99 (default: 3)")
    live.add_argument(
        "--dump-signal", action="store_true", default=None, help="with --flight: SIGUSR1 has them written, too"
    )


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--hooks", action="store_true", help="list every hook that was tried, too")
    doctor.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def add_record_limit(parser: argparse.ArgumentParser) -> None:
    """Declares how large a recording may get."""
    parser.add_argument(
        "--record-limit",
        metavar="SIZE",
        help="with --record: keep the newest frames within SIZE, such as 500MB, in several files",
    )


def add_otlp(parser: argparse.ArgumentParser) -> None:
    """Declares where telemetry goes."""
    parser.add_argument(
        "--otlp",
        metavar="ENDPOINT",
        nargs="?",
        const=True,
        type=_endpoint,
        help="send spans and metrics to ENDPOINT, by default where the OTEL_* variables say (needs the extra `otel`)",
    )


def _endpoint(text: str) -> bool | str:
    from mcp_probe.options import parse_otlp

    try:
        return parse_otlp(text)
    except OptionError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a URL with http or https, such as http://localhost:4318; the command comes after `--`."
        ) from None


RUN = Declared(
    help="profile any Python MCP server, unmodified",
    description="Starts COMMAND with the probe inside and reports when it ends.",
    options=_add_run,
    usage="mcp-probe run [options] -- COMMAND [ARGUMENT ...]",
    examples=_EXAMPLES,
    has_looks=False,
)
DOCTOR = Declared(
    help="say what will be seen here, how exactly, and why not more",
    description="Says what the probe would see in this Python or, with a COMMAND, in the Python that COMMAND "
    "starts, and how exactly. Does not run the server itself. Exits with 1 if no request would be seen.",
    options=_add_doctor,
    usage="mcp-probe doctor [-- COMMAND [ARGUMENT ...]]",
)
