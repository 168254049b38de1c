"""What the probe says in words: check -> evidence -> one sentence with the number -> what to do.

Pure functions of a :class:`~mcp_probe.model.Summary`, so a live server, a recording and a test get the
same answer. Every check is explained in docs/findings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.advice import sdk_of
from mcp_probe.aggregate.checks.awaits import INSIDE, long_wait, serial_awaits, unexplained_wait
from mcp_probe.aggregate.checks.backends import client_per_request, slow_backend
from mcp_probe.aggregate.checks.backlog import dispatch_backlog
from mcp_probe.aggregate.checks.budget import mostly_waiting
from mcp_probe.aggregate.checks.data import not_enough_data
from mcp_probe.aggregate.checks.ending import crashed
from mcp_probe.aggregate.checks.error_logs import slow_error_logging
from mcp_probe.aggregate.checks.evidence import clients_waited_ms, total_ms, window_ms
from mcp_probe.aggregate.checks.first_calls import cold_start, cold_start_stampede
from mcp_probe.aggregate.checks.holders import pool_exhausted, serial_handler
from mcp_probe.aggregate.checks.memory import large_payload, memory_growth, memory_peak, unbounded_fan_out
from mcp_probe.aggregate.checks.notifications import chatty_notifications
from mcp_probe.aggregate.checks.peer import serial_client, slow_reader, stdout_pollution
from mcp_probe.aggregate.checks.pools import abandoned_work, executor_saturated, transport_starvation
from mcp_probe.aggregate.checks.runtime import gc_pause, gil_contention, host_pressure, own_threads
from mcp_probe.aggregate.checks.sdk import schema_lookup
from mcp_probe.aggregate.checks.spinning import busy_spin
from mcp_probe.aggregate.checks.steps import blocking_call, cpu_bound_step
from mcp_probe.aggregate.checks.waiting import crowding, head_of_line
from mcp_probe.aggregate.codes import CODES, SEVERITIES, check_codes
from mcp_probe.aggregate.growth import MIN_CALLS
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import LOOP_OPERATION, Ending, Finding, LeakHunt, Summary, Verdict

__all__ = ["CHECKS", "CODES", "FindingOptions", "check_codes", "findings_of", "follows", "verdict_of"]

Check = Callable[[Summary, FindingOptions], Iterable[Finding]]

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "blocking-call": blocking_call,
        "cpu-bound-step": cpu_bound_step,
        "head-of-line": head_of_line,
        "crowding": crowding,
        "serial-handler": serial_handler,
        "pool-exhausted": pool_exhausted,
        "client-per-request": client_per_request,
        "serial-awaits": serial_awaits,
        "slow-backend": slow_backend,
        "unexplained-wait": unexplained_wait,
        "long-wait": long_wait,
        "gc-pause": gc_pause,
        "gil-contention": gil_contention,
        "own-threads": own_threads,
        "host-pressure": host_pressure,
        "executor-saturated": executor_saturated,
        "transport-starvation": transport_starvation,
        "serial-client": serial_client,
        "slow-reader": slow_reader,
        "chatty-notifications": chatty_notifications,
        "memory-growth": memory_growth,
        "memory-peak": memory_peak,
        "large-payload": large_payload,
        "schema-lookup": schema_lookup,
        "stdout-pollution": stdout_pollution,
        "slow-error-logging": slow_error_logging,
        "unbounded-fan-out": unbounded_fan_out,
        "cold-start": cold_start,
        "cold-start-stampede": cold_start_stampede,
        "abandoned-work": abandoned_work,
        "busy-spin": busy_spin,
        "dispatch-backlog": dispatch_backlog,
        "crashed": crashed,
        "not-enough-data": not_enough_data,
    }
)
"""Code -> its check, in the order of docs/findings.md."""

DEFAULTS = FindingOptions()

_UNEXPLAINED = ("long-wait", "unexplained-wait")
"""Waits of which nobody knows whether they are time lost."""


def findings_of(summary: Summary, options: FindingOptions = DEFAULTS) -> tuple[Finding, ...]:
    """All findings: those that explain most of what clients waited first, and those of severity ``info`` last.

    None explains more than all of that. ``summary.findings`` and ``summary.verdict`` are ignored. Where no single thing
    costs much, what many cost together is told.
    """
    found = [
        finding for code, check in CHECKS.items() if code not in options.disabled for finding in check(summary, options)
    ]
    if "long-wait" not in options.disabled and not any(
        _is_serious(each) or each.code in _UNEXPLAINED for each in found
    ):
        found += mostly_waiting(summary, options)
    whole = clients_waited_ms(summary)
    if whole is not None:
        found = [replace(finding, cost_ms=min(finding.cost_ms, whole)) for finding in found]
    return _ranked(found)


def verdict_of(summary: Summary, findings: Sequence[Finding]) -> Verdict:
    """The finding that explains most of what clients waited; without one, "healthy" or "not-enough-data".

    A finding that only follows from another one is never the verdict, nor is one of severity ``info``. What the host
    took is the verdict only where nothing else is found. Where nothing is known to lose time, a wait that nothing
    explains is the verdict: `unexplained-wait` or `long-wait`. Only without those the server is healthy: its calls
    mostly do their own work, or await something outside. During a leak hunt the verdict is about memory only: the hunt
    itself slows the server down.
    """
    verdict = _verdict_of(summary, findings)
    looked_at = phrasing.looked_at(summary.requests)
    return replace(verdict, sentence=f"{verdict.sentence} {looked_at}") if looked_at else verdict


def with_ending(summary: Summary, ending: Ending) -> Summary:
    """``summary`` of a program of which only its parent knows how it ended."""
    found = replace(summary, ending=ending)
    told = tuple(crashed(found, DEFAULTS))
    if not told:
        return found
    findings = _ranked((*told, *summary.findings))
    return replace(found, findings=findings, verdict=verdict_of(found, findings))


def _ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that explain most first; where that is as much, the most severe. Those of ``info`` accuse nobody: last."""
    return tuple(
        sorted(
            findings,
            key=lambda found: (found.severity == "info", -found.cost_ms, SEVERITIES.index(found.severity)),
        )
    )


def _verdict_of(summary: Summary, findings: Sequence[Finding]) -> Verdict:
    for finding in findings:
        if finding.code == "crashed" and finding.severity == "critical":
            return Verdict(finding.code, finding.subject, finding.sentence)
    if summary.leaks is not None:
        return _verdict_of_hunt(summary, summary.leaks, findings)
    serious = [finding for finding in findings if _is_serious(finding) and not follows(finding, findings)]
    # Nobody knows whether a wait without a name is time lost, and the host is nobody's fault: what certainly is comes
    # first.
    for last_of_all in (("unexplained-wait", "host-pressure"), ("host-pressure",), ()):
        candidates = [finding for finding in serious if finding.code not in last_of_all]
        if candidates:
            break
    if candidates:
        told = max(candidates, key=lambda finding: finding.cost_ms)
        return Verdict(told.code, told.subject, told.sentence)
    for finding in findings:
        if finding.code == "not-enough-data":
            return Verdict(finding.code, finding.subject, finding.sentence)
    if any("steps" in row.unseen for row in summary.operations):
        return Verdict("not-enough-data", summary.server.name, _unseen(summary))
    waits = [finding for finding in findings if finding.code in _UNEXPLAINED]
    if waits:
        told = max(waits, key=lambda finding: finding.cost_ms)
        return Verdict(told.code, told.subject, told.sentence)
    return Verdict("healthy", summary.server.name, _healthy(summary))


def _verdict_of_hunt(summary: Summary, hunt: LeakHunt, findings: Sequence[Finding]) -> Verdict:
    """The worst leak, or another finding about memory, or how certain it is that there is no leak."""
    leaks = [finding for finding in findings if finding.code == "memory-growth"]
    others = [finding for finding in findings if finding.code == "memory-peak" and _is_serious(finding)]
    if leaks or others:
        told = max(leaks, key=_bytes_per_call) if leaks else others[0]
        return Verdict(told.code, told.subject, told.sentence)
    steady = [row for row in hunt.operations if row.verdict == "steady"]
    unknown = len(hunt.operations) - len(steady)
    if not steady:
        sentence = f"No operation was called often enough to tell whether it leaks: that takes {MIN_CALLS} calls."
        return Verdict("not-enough-data", summary.server.name, sentence)
    floor = max(row.floor_bytes or 0.0 for row in steady)
    calls = phrasing.plural(sum(row.calls for row in steady), "call")
    rest = f"; of {phrasing.plural(unknown, 'operation')} there were too few calls to say" if unknown else ""
    sentence = (
        f"{calls}: none of {phrasing.plural(len(steady), 'operation')} grew by "
        f"{phrasing.size(floor)} a call or more{rest}"
    )
    parts = () if hunt.process is None else hunt.process.remainders
    if not parts or any(part.verdict == "unknown" for part in parts):
        sentence = f"No tool leaks in {sentence}. Whether the process grows beside them is not known."
    else:
        sentence = f"No leak in {sentence}, and nothing grows in the process beside them."
    return Verdict("healthy", summary.server.name, sentence)


def _bytes_per_call(finding: Finding) -> float:
    found = finding.evidence.get("bytes_per_call")
    return float(found) if isinstance(found, (int, float)) else 0.0


def _is_serious(finding: Finding) -> bool:
    return finding.severity != "info"


def follows(finding: Finding, findings: Sequence[Finding]) -> bool:
    """Whether it only follows from another of ``findings``, so that what it costs is part of what that costs.

    The blocker's own finding explains the waiting, thousands of tasks what the collector has to do, and so on.
    """
    if finding.code == "head-of-line":
        causes = ("blocking-call", "cpu-bound-step")
        return any(other.code in causes and other.subject == finding.evidence.get("blocker") for other in findings)
    if finding.code == "serial-handler":
        return _holders_were_blocked(finding, findings)
    if finding.code == "executor-saturated":
        starved = any(_is_same_pool(finding, other) for other in findings if other.code == "transport-starvation")
        return starved or any(_makes_clients(other, finding) for other in findings)
    if finding.code == "cpu-bound-step":
        return _is_of_messages(finding) and any(other.code == "large-payload" for other in findings)
    if finding.code == "slow-reader":
        return any(other.code == "large-payload" and other.subject == finding.subject for other in findings)
    if finding.code == "gc-pause":
        return any(other.code == "unbounded-fan-out" for other in findings)
    if finding.code == "dispatch-backlog":
        return any(other.code in _SLOW_DOWN and _is_serious(other) for other in findings)
    return False


def _makes_clients(finding: Finding, saturated: Finding) -> bool:
    """The jobs that fill the pool mostly make clients: those are too many, not the threads too few."""
    if finding.code != "client-per-request" or not _is_serious(finding):
        return False
    share, holders = finding.evidence.get("making_share"), str(saturated.evidence.get("holders")).split(", ")
    return finding.subject in holders and isinstance(share, (int, float)) and share > 0.5


def _is_of_messages(finding: Finding) -> bool:
    """Work of no request at a line of the SDK's, or below: it encodes, writes and reads messages."""
    file = finding.evidence.get("file")
    return finding.subject == LOOP_OPERATION and isinstance(file, str) and sdk_of(file) is not None


_SLOW_DOWN = frozenset((
    "blocking-call", "cpu-bound-step", "crowding", "busy-spin", "serial-handler", "pool-exhausted",
    "client-per-request", "serial-awaits", "slow-backend", "gc-pause", "gil-contention", "own-threads",
    "executor-saturated", "transport-starvation",
))  # fmt: skip
"""Why a server answers slower than requests come."""


def _holders_were_blocked(finding: Finding, findings: Sequence[Finding]) -> bool:
    """For most of the wait the holder could not run: whoever held the loop has a finding of its own."""
    evidence = finding.evidence
    ms, waited = evidence.get("root_ms"), evidence.get("waited_ms")
    if not isinstance(ms, (int, float)) or not isinstance(waited, (int, float)):
        return False
    if evidence.get("root_kind") != "blocked" or ms < 0.5 * waited:
        return False
    causes = ("blocking-call", "cpu-bound-step")
    return any(other.code in causes and other.subject == evidence.get("root") for other in findings)


def _is_same_pool(one: Finding, other: Finding) -> bool:
    return one.subject == other.subject and one.evidence.get("made_at") == other.evidence.get("made_at")


def _unseen(summary: Summary) -> str:
    count = phrasing.plural(summary.requests.count, "request")
    return (
        f"No verdict: {count} in {phrasing.duration(window_ms(summary))}, but what they did on the event loop could "
        "not be seen here. `mcp-probe doctor` says why."
    )


def _healthy(summary: Summary) -> str:
    count = phrasing.plural(summary.requests.count, "request")
    outside = _outside(summary)
    nothing = f"nothing in this server held them up for long; {outside}" if outside else "nothing held them up for long"
    sentence = f"Healthy: {count} in {phrasing.duration(window_ms(summary))}, and {nothing}"
    utilization = summary.loop.utilization
    if utilization is not None:
        sentence += f"; the event loop was busy {phrasing.percent(min(1.0, utilization))} of the time"
    return f"{sentence}."


def _outside(summary: Summary) -> str:
    """What requests mostly awaited, if they spent most of their time on it; empty if they did not."""
    whole = sum(total_ms(row) for row in summary.operations if row.kind == "request")
    waits: dict[str, float] = {}
    for operation in summary.operations:
        for found in operation.awaits if operation.kind == "request" else ():
            name = found.object if found.object == found.kind else f"{found.kind} `{found.object}`"
            is_outside = found.kind not in INSIDE and found.stage != "busy"
            waits[name] = waits.get(name, 0.0) + (found.total_ms if is_outside else 0.0)
    name = max(waits, key=lambda one: waits[one], default="")
    if whole <= 0 or not name or waits[name] <= 0.5 * whole:
        return ""
    return f"{phrasing.percent(min(1.0, waits[name] / whole))} of their time they awaited {name}"
