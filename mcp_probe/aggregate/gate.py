"""Whether a run passes ``--fail-on``: which findings fail it, which a baseline has already, what was not checked.

Pure. It fails closed: a run that measured nothing, a probe that failed, and a code that is named and could not be
checked do not pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_probe.aggregate.checks.notifications import is_counted, is_timed
from mcp_probe.aggregate.fail_on import Rule, codes_of
from mcp_probe.aggregate.phrasing import file_and_line
from mcp_probe.model import Finding, Summary

_OF_AWAITS = frozenset(
    {
        *("serial-handler", "pool-exhausted", "client-per-request", "serial-awaits", "slow-backend"),
        *("unexplained-wait", "long-wait"),
    }
)
_OF_STEPS = frozenset({"blocking-call", "cpu-bound-step", "head-of-line", "crowding"})

Identity = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """One code that was checked in one server: its findings that fail, and those that the baseline has."""

    code: str
    failing: tuple[Finding, ...]
    known: tuple[Finding, ...]
    unchecked: str | None  # why it could not be checked


@dataclass(frozen=True, slots=True)
class Server:
    """One summary that was judged."""

    name: str
    seconds: float
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``problems`` are sentences: why it fails whatever was found. ``remarks`` are sentences that change nothing."""

    servers: tuple[Server, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def failing(self) -> tuple[Finding, ...]:
        """Of all servers, in the order of docs/findings.md within each."""
        return tuple(found for server in self.servers for case in server.cases for found in case.failing)

    @property
    def known(self) -> tuple[Finding, ...]:
        """Asked for, and in the baseline already."""
        return tuple(found for server in self.servers for case in server.cases for found in case.known)

    @property
    def passes(self) -> bool:
        """Nothing fails, and nothing stood in the way of knowing it."""
        return not self.failing and not self.problems


def judge(
    summaries: Sequence[Summary], rules: Sequence[Rule], baseline: Sequence[Finding] = (), problems: Sequence[str] = ()
) -> Judgement:
    """Judges a run by ``rules``.

    Args:
        baseline: findings of an earlier run. One that a rule asks for is known, and does not fail, where the baseline
            has the same finding and the rule asks for that one, too: so one that crossed a threshold since is new.
        problems: sentences on what of the probe failed; any makes the run fail.
    """
    servers = tuple(_server(summary, rules, baseline) for summary in summaries)
    requests = sum(summary.requests.count for summary in summaries)
    found = [] if requests else ["Nothing was measured: no request was recorded."]
    found += problems
    found += [
        f"A part of the probe failed, so findings may be missing ({hook})."
        for hook in dict.fromkeys(hook for summary in summaries for hook in summary.probe.disabled_hooks)
        if ": disabled after " in hook
    ]
    named = {rule.code for rule in rules}
    blind = {case.code: case.unchecked for server in servers for case in server.cases if case.unchecked}
    found += [f"{code} could not be checked: {why}." for code, why in blind.items() if code in named]
    remarks = [f"{code} was not checked: {why}." for code, why in blind.items() if code not in named]
    few = [finding for summary in summaries for finding in summary.findings if finding.code == "not-enough-data"]
    if few and requests and "not-enough-data" not in named:
        remarks.append(
            "There were too few requests for checks that need statistics; --fail-on not-enough-data makes that fail."
        )
    return Judgement(servers, tuple(found), tuple(remarks))


def _server(summary: Summary, rules: Sequence[Rule], baseline: Sequence[Finding]) -> Server:
    earlier: dict[Identity, list[Finding]] = {}
    for finding in baseline:
        earlier.setdefault(identity_of(finding), []).append(finding)
    cases: list[Case] = []
    for code in codes_of(rules):
        failing: list[Finding] = []
        known: list[Finding] = []
        for finding in summary.findings:
            asked = [rule for rule in rules if finding.code == code and rule.matches(finding)]
            before = earlier.get(identity_of(finding), []) if asked else []
            if asked:
                is_known = all(any(rule.matches(one) for one in before) for rule in asked)
                (known if is_known else failing).append(finding)
        unchecked = None if failing or known else _why_unchecked(summary, code)
        cases.append(Case(code, tuple(failing), tuple(known), unchecked))
    return Server(summary.server.name, summary.window.seconds, tuple(cases))


def _why_unchecked(summary: Summary, code: str) -> str | None:
    if code in _OF_AWAITS and summary.probe.awaits != "on":
        return "nobody looked at what requests awaited (--awaits on)"
    memory = [row.memory for row in summary.operations]
    if code == "memory-peak" and all(each.peak.max is None for each in memory):
        return "no call's memory was measured (--memory light)"
    if code == "memory-growth" and summary.leaks is None and all(each.retained.p50 is None for each in memory):
        return "no call's memory was measured (--memory leaks)"
    if code == "crashed" and summary.ending is None:
        return "only `mcp-probe run` sees how the server ended"
    if code == "chatty-notifications":
        counted = [row for row in summary.operations if row.kind == "request" and is_counted(row)]
        if not counted:
            return "no notifications were counted (--measures light; on stdio or HTTP sessions)"
        if not all(map(is_timed, counted)):
            return "how long notifications were written is only seen on stdio"
    if code in _OF_STEPS and any("steps" in row.unseen for row in summary.operations):
        return "what requests did on the event loop could not be seen (`mcp-probe doctor` says why)"
    return None


def identity_of(finding: Finding) -> Identity:
    """What makes two findings of two runs the same: code, subject, thing and place.

    The thing is the lock, pool or backend that it is about. The place is the file's own name and the function, or
    the file alone: a line moves with every edit above it, and a folder with every checkout.
    """
    evidence = finding.evidence
    thing = next((evidence[key] for key in ("object", "backend", "pool", "blocker") if evidence.get(key)), "")
    return finding.code, finding.subject, str(thing), f"{_file_of(finding)} {evidence.get('function') or ''}".strip()


def place_of(finding: Finding) -> tuple[str | None, int | None]:
    """File and line of ``finding``, as far as it names them."""
    evidence = finding.evidence
    for file, line in (("file", "line"), ("step_file", "step_line")):
        if evidence.get(file):
            found = evidence.get(line)
            return str(evidence[file]), int(found) if isinstance(found, (int, float)) else None
    for key in ("where", "holder_where", "made_at"):
        where = file_and_line(str(evidence[key])) if evidence.get(key) else None
        if where is not None:
            return where
    return None, None


def _file_of(finding: Finding) -> str:
    file, _ = place_of(finding)
    return (file or "").replace("\\", "/").rsplit("/", 1)[-1]
