"""How the program ended: `crashed`."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Ending, Finding, Summary

ASKED_FOR = frozenset({"SIGHUP", "SIGINT", "SIGTERM"})
"""Clients and users end servers so."""
# A shell, and a program that handles the signal, end with 128 + its number.
_ASKED_FOR_CODES = frozenset(128 + signal.Signals[name] for name in ASKED_FOR if hasattr(signal, name))


def crashed(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The program ended otherwise than with exit code 0, and nobody had asked it to."""
    ending = summary.ending
    if ending is None or ending.exit_code in (0, *_ASKED_FOR_CODES) or ending.signal in ASKED_FOR:
        return
    how = f"was ended by {ending.signal}" if ending.signal else f"ended with exit code {ending.exit_code}"
    place = phrasing.place_at(ending.where)
    why = f": `{ending.exception}`, which nothing caught" if ending.exception else ""
    at = f", at {place}" if place and why else ""
    asked, in_order = summary.requests.count, _is_in_order(summary, ending)
    served = f"It had served {phrasing.plural(asked, 'request')}." if asked else "No client had asked it anything."
    if in_order:
        served = f"It had answered all {phrasing.plural(asked, 'request')}, and no exception is known."
    yield Finding(
        code="crashed",
        severity="warn" if in_order else "critical",
        confidence="exact",
        subject=summary.server.name,
        sentence=f"The server {how}{why}{at}. {served}",
        advice=_IN_ORDER if in_order else _advice(ending),
        evidence={
            "exit_code": ending.exit_code,
            "signal": ending.signal,
            "exception": ending.exception,
            "where": place,
            "requests": asked,
        },
    )


_IN_ORDER = (
    "If its client had gone, that is how a server ends whose last lines fail without one: a `print` to a closed "
    "stdout, or a `sys.exit` with what its `main` returned. The last lines that it wrote to its own stderr say more."
)


def _is_in_order(summary: Summary, ending: Ending) -> bool:
    """Whether it lost nobody's request, and Python ended it as it ends any program: only its exit code is bad."""
    broke = ending.signal or ending.exception or ending.is_port_in_use
    return summary.complete and not broke and bool(summary.requests.count) and not summary.requests.unfinished


def _advice(ending: Ending) -> str:
    if ending.is_port_in_use:
        return "The port is in use: end the other process, or give this server another port."
    if ending.signal == "SIGKILL":
        return "Somebody killed it, or the system did: look for out-of-memory kills in the system's log."
    if ending.signal:
        return "A fault in C code: run it with PYTHONFAULTHANDLER=1 to see the line."
    return "The last lines that it wrote to its own stderr say more."
