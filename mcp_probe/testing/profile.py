"""What a test asserts on: one server's profile, from when it was made until it is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Protocol

from mcp_probe.aggregate.codes import CODES, check_codes
from mcp_probe.aggregate.fail_on import Rule
from mcp_probe.aggregate.gate import judge
from mcp_probe.model import Await, Finding, Summary
from mcp_probe.testing.errors import NotMeasuredError
from mcp_probe.testing.locks import LockedAwait, short_place
from mcp_probe.testing.tally import SLOW_STEP_MS, Call, Tally

LOOKED_INTO_MS = 2.0
"""Steps from here on have their CPU time read; shorter ones count as long as they lasted."""

AT_ONCE_JUDGED = frozenset(
    {
        *("blocking-call", "cpu-bound-step", "memory-peak", "large-payload", "schema-lookup", "stdout-pollution"),
        *("slow-error-logging", "unbounded-fan-out", "busy-spin", "crashed", "not-enough-data"),
    }
)
"""Findings that a single call may raise. The others need statistics, which a short test does not give."""

_OF_STEPS = ("blocking-call", "cpu-bound-step")
_BACKENDS = ("connect", "http", "db", "connection-pool")


class Source(Protocol):
    """Where a profile's frames come from."""

    @property
    def command(self) -> tuple[str, ...]:
        """What to start; empty where the server runs in this process."""

    def tally(self) -> Tally:
        """All that there is by now. Raises: ProbeError."""

    def held_bytes(self, calls: Sequence[Call]) -> list[int] | None:
        """What each of ``calls`` still holds after a full collection; ``None`` where only a hunt could tell."""

    def stop(self) -> None:
        """No more will come. Idempotent."""

    def clean(self) -> None:
        """Remove what was left on disk: nobody will ask any more."""


class StepCpu(NamedTuple):
    """The step with the most CPU time."""

    ms: float
    operation: str
    where: str | None  # file:line


class Profile:
    """Made by the fixture ``mcp_profile``. Ask it while it is open, or after; ask after the server's last answer.

    Every method takes the name of one operation (a tool, a prompt or a method); without it all tools, prompts and
    resources count together. Every method raises :class:`NotMeasuredError` where the number is not known.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stopped = False

    @property
    def command(self) -> tuple[str, ...]:
        """What a client starts instead of the server's command; empty where the server runs in this process."""
        return self._source.command

    def stop(self) -> None:
        """End the measurement; what was seen can still be asked for. Leaving the ``with`` block does it."""
        if not self._stopped:
            self._stopped = True
            self._source.stop()

    def clean(self) -> None:
        """Nobody will ask any more; the fixture does it after each test."""
        self.stop()
        self._source.clean()

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # --- what tests ask ---

    @property
    def summary(self) -> Summary:
        """All that a report is made of. Times in it depend on how busy the machine is."""
        return self._read().summary(live=not self._stopped)

    def calls(self, operation: str | None = None) -> int:
        """How many calls were measured."""
        return len(self._read().calls_of(operation))

    def findings(self, code: str | None = None, operation: str | None = None) -> list[Finding]:
        """Findings, of one code or (without it) of all but ``not-enough-data``; about one operation or about any.

        Slow steps of an operation's first call count only if it was the only one (``cold-start`` is about those).

        Without a code, what could not be judged is silent: name the codes that the test is about.

        Raises: NotMeasuredError if there is none with that code, and it could not be judged; OptionError for a code
            that does not exist.
        """
        if code is not None:
            check_codes([code])
        self._read().calls_of(operation)
        summary = self.judged()
        found = [
            one
            for one in summary.findings
            if one.code == code or (code is None and one.code != "not-enough-data")
            if operation is None or one.subject == operation
        ]
        if code is not None and not found:
            _check_judged(summary, code)
        return found

    def judged(self) -> Summary:
        """The summary without findings that only a first call raised: it imports, and starts threads."""
        summary, tally = self.summary, self._read()
        found = [one for one in summary.findings if one.code not in _OF_STEPS or _recurs(tally, one)]
        return replace(summary, findings=tuple(found))

    def longest_step_cpu(self, operation: str | None = None) -> StepCpu:
        """The step on the event loop with the most CPU time, in ms, and its line.

        CPU time, not wall-clock time: what waits for a CPU, or sleeps, does not count, nor does the garbage collector.
        Where all steps lasted less than 2 ms it is the longest of them, as long as it lasted. The first call of each
        operation is left out if there are more: it imports and sets up (findings of ``cold-start`` are about that).
        """
        tally = self._read()
        calls = tally.calls_of(operation)
        calls = _later(calls) or calls
        tally.stepped(calls)
        if tally.header is not None and tally.header.memory.startswith("leaks"):
            raise NotMeasuredError(
                'With memory="leaks", which `retained` needs for a command, a server computes several times longer. '
                "Ask for CPU time in a test of its own."
            )
        longest = max(calls, key=lambda call: min(call.step_max_ns, LOOKED_INTO_MS * 1e6))
        best = StepCpu(min(longest.step_max_ns / 1e6, LOOKED_INTO_MS), longest.operation, None)
        for step, cpu_ns in tally.slow_steps(calls):
            where = None if step.file is None else f"{step.file}:{step.line}"
            if cpu_ns is None and (step.end_ns - step.start_ns) / 1e6 >= max(LOOKED_INTO_MS, best.ms):
                raise NotMeasuredError(f"The CPU time of a step of `{step.operation}` could not be read here.")
            if cpu_ns is not None and cpu_ns / 1e6 > best.ms:
                best = StepCpu(cpu_ns / 1e6, step.operation, where)
        return best

    def retained_bytes(self, operation: str | None = None) -> float:
        """What a call still holds after it has ended, after a full garbage collection; the mean of its calls.

        In memory of Python's allocators: buffers that C libraries take elsewhere (numpy before 2.5, OpenSSL) are not in
        it, and objects below 2 kB that Python keeps for reuse may be missed. The first call of each operation is left
        out: it keeps what every first call sets up. What the test keeps of the answers counts, if it was made here.
        """
        tally = self._read()
        calls = tally.calls_of(operation)
        later = _later(calls)
        if not later:
            raise NotMeasuredError(
                f"`{calls[0].operation}` was called once, and a first call keeps what every first call sets up. "
                "Call it at least twice; ten times tell more."
            )
        held = self._source.held_bytes(later)
        if held is not None:
            return sum(held) / len(held)
        return _hunted(tally, {call.operation for call in later})

    def connections_opened(self, operation: str | None = None) -> int:
        """Connections that calls opened to backends, all calls together (docs/testing.md names the libraries)."""
        calls = self._read().calls_of(operation)
        return sum(one.opened for _, one in self._awaits(calls))

    def tasks_at_once(self, operation: str | None = None) -> int:
        """The most tasks that one call had at once, its own included."""
        tally = self._read()
        calls = tally.calls_of(operation)
        tally.stepped(calls)
        return max(call.tasks_peak for call in calls)

    def awaits_under_lock(self, operation: str | None = None) -> list[LockedAwait]:
        """Calls that were suspended while they held a lock (asyncio's, anyio's or trio's), and what they awaited."""
        tally = self._read()
        calls = tally.calls_of(operation)
        tally.stepped(calls)
        if any(call.awaits is None for call in calls):
            raise NotMeasuredError("Nobody looked at what calls await: profile with awaits=True.")
        self._check_hook("awaits (locks)", "locks that calls hold")
        return tally.locked(calls)

    def report(self) -> str:
        """The report's rows of what was measured, as text."""
        from mcp_probe.testing.rows import rows_of

        return rows_of(self.summary)

    # --- how ---

    def _read(self) -> Tally:
        return self._source.tally()

    def _awaits(self, calls: Sequence[Call]) -> list[tuple[str, Await]]:
        """(operation, what it awaited) of ``calls``. Raises: NotMeasuredError if some of that is not known."""
        found = []
        for call in calls:
            if call.awaits is None:
                raise NotMeasuredError("Nobody looked at what calls await: profile with awaits=True.")
            found += [(call.operation, one) for one in call.awaits]
        for operation, one in found:
            if one.kind in _BACKENDS and one.looks:
                at = "" if one.where is None else f" at {short_place(one.where)}"
                raise NotMeasuredError(
                    f"`{operation}` awaited {one.object}{at}, which no hook follows: how many connections were opened "
                    "is not known. docs/testing.md names the libraries whose connections are counted."
                )
        for hook, state in self._hooks().items():
            if hook.startswith("awaits (") and not state.startswith(("active", "does not apply")):
                raise NotMeasuredError(f"Connections could not be counted: {hook} is {state}.")
        return found

    def _check_hook(self, hook: str, what: str) -> None:
        state = self._hooks().get(hook, "not installed")
        if not state.startswith("active"):
            raise NotMeasuredError(f"{what[0].upper()}{what[1:]} could not be seen: the hook {hook!r} is {state}.")

    def _hooks(self) -> dict[str, str]:
        header = self._read().header
        return {} if header is None else dict(header.hooks)


def _recurs(tally: Tally, finding: Finding) -> bool:
    """Whether a call of its operation that is not the first had a slow step; ``True`` if there is only one call."""
    calls = [call for call in tally.calls if call.operation == finding.subject]
    later = _later(calls)
    if not later:
        return True
    steps = (step for step, _ in tally.slow_steps(later))
    return any(step.end_ns - step.start_ns >= SLOW_STEP_MS * 1e6 for step in steps)


def _later(calls: Sequence[Call]) -> list[Call]:
    """All but the first call of each operation."""
    first = {call.operation: call.id for call in reversed(calls)}
    return [call for call in calls if first[call.operation] != call.id]


def _check_judged(summary: Summary, code: str) -> None:
    """Raises: NotMeasuredError if nothing was found because it could not be."""
    problems = judge([summary], (Rule(code, code=code),)).problems
    if problems:
        raise NotMeasuredError(problems[0])
    few = next((one for one in summary.findings if one.code == "not-enough-data"), None)
    if few is not None and code not in AT_ONCE_JUDGED:
        single = ", ".join(name for name in CODES if name in AT_ONCE_JUDGED)
        raise NotMeasuredError(
            f"{code} needs statistics, and there were too few calls for them. {few.sentence} "
            f"A single call is enough for: {single}."
        )


def _hunted(tally: Tally, operations: set[str]) -> float:
    """From the leak hunt: without the oldest group of each operation's calls, if it has several."""
    growth = tally.growth
    state = "" if tally.header is None else tally.header.memory
    if growth is None and state.startswith("leaks"):
        raise NotMeasuredError(f"What calls retain could not be measured: no full collection was made ({state}).")
    if growth is None:
        raise NotMeasuredError(
            "What calls retain is known here only after full garbage collections. "
            'Profile with memory="leaks", which makes the server several times slower; a budget for `retained` does.'
        )
    held = calls = 0
    for _, operation, count, total, groups in growth.rows:
        if operation in operations:
            later = groups[1:] if len(groups) > 1 else ()
            held += sum(bytes_ for _, bytes_ in later) if later else total
            calls += sum(number for number, _ in later) if later else count
    if not calls:
        raise NotMeasuredError("What these calls retain could not be measured: none had ended at the last look.")
    return held / calls
