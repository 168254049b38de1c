"""The codes of findings. They are stable: people put them in CI with ``--fail-on``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from mcp_probe.errors import OptionError
from mcp_probe.model import Severity

SEVERITIES: tuple[Severity, ...] = ("critical", "warn", "info")
"""The most severe first."""

CODES: Mapping[str, str] = MappingProxyType(
    {
        "blocking-call": "a tool blocks the event loop: its thread sleeps or waits instead of working",
        "cpu-bound-step": "a tool computes on the event loop for long at a stretch",
        "head-of-line": "a tool's slow calls spend much of their time waiting for other requests",
        "crowding": "the event loop is full of small steps, none of which is slow by itself",
        "serial-handler": "calls wait for a lock, semaphore or limiter that other calls hold",
        "pool-exhausted": "calls wait for a connection of a pool that is too small",
        "client-per-request": "a new connection is opened for each request to the same host",
        "serial-awaits": "a call makes similar awaits one after the other, with nothing beside them",
        "slow-backend": "one host or database is most of a tool's time, and slow to answer",
        "unexplained-wait": "a tool's slow calls mostly await something that nothing named",
        "long-wait": "a tool's calls mostly wait inside the server, for what no other finding explains",
        "gc-pause": "the garbage collector stops the server for long",
        "gil-contention": "other threads keep the event loop waiting for the GIL",
        "own-threads": "the server's own threads leave the event loop without a CPU",
        "host-pressure": "the machine or its CPU limit does not let the server run",
        "executor-saturated": "a thread pool is at its limit and jobs wait for a thread",
        "transport-starvation": "the transport's own reader or writer waits for a thread",
        "serial-client": "the client sends one request at a time while the server could serve more",
        "slow-reader": "the client does not read its answers as fast as they come",
        "chatty-notifications": "a call sends many notifications, and they are much of what the transport writes",
        "memory-growth": "calls of a tool keep memory, and what they keep grows with their number",
        "memory-peak": "a single call holds a large part of the memory there is",
        "large-payload": "arguments or results are so large that coding them holds the event loop",
        "schema-lookup": "the SDK lists all tools before each call, and that takes much of the call's time",
        "stdout-pollution": "something other than the transport writes to stdout while it serves stdio",
        "slow-error-logging": "logging the traceback of a failing call keeps the event loop for long",
        "unbounded-fan-out": "a call starts as many tasks at once as its input asks for",
        "cold-start": "the first call of a tool does what no later call has to, and takes far longer",
        "cold-start-stampede": "several first calls of a tool, in flight at once, each set up the same",
        "abandoned-work": "a thread works on for a call that was cancelled or has failed",
        "busy-spin": "a call runs again and again on the event loop without waiting for anything",
        "dispatch-backlog": "requests come faster than they are answered, and answers take longer and longer",
        "crashed": "the server ended otherwise than cleanly, and nobody had asked it to",
        "not-enough-data": "too few requests, or too short a time, for the statistical checks",
    }
)
"""Code -> what it says, in the order of docs/findings.md."""


def check_codes(names: Iterable[str]) -> frozenset[str]:
    """``names`` as a set, if each is a code that this version checks.

    Raises:
        OptionError: Names every one that is not, with the known codes nearest to it.
    """
    wanted = frozenset(names)
    complaints = [_complaint(name) for name in sorted(wanted - CODES.keys())]
    if complaints:
        raise OptionError(f"{' '.join(complaints)} Known codes: {', '.join(CODES)}.")
    return wanted


def _complaint(name: str) -> str:
    near = get_close_matches(name.lower(), CODES, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"No finding has the code {name!r}{hint}"
