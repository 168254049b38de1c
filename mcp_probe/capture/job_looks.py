"""What jobs on worker threads wait for, where no hook knows: the thread that looks reads their stacks.

The system counts how often a thread was given a CPU. If that count is the same at two looks, the thread has not run in
between: its stack is the same, and all the time between the looks was one wait, if it does not wait for a CPU. Where
the thread has run, the time between two looks is a wait only if it used hardly any CPU and both looks found the same
call of a library that waits by its kind; a thread that waits for the GIL looks the same otherwise. Without these
counts (not Linux) only such calls are named.

What a thread computed between two looks is counted for the line that the second one finds, by the CPU time it used. A
line that computes for long is found that much more often, so the lines' shares are an estimate of where the CPU went.

Source: Linux, Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, Protocol

from mcp_probe.capture.await_kinds import is_taken
from mcp_probe.capture.awaits import Awaited
from mcp_probe.capture.places import frame_of, is_own
from mcp_probe.capture.proc_files import read
from mcp_probe.clock import now_ns
from mcp_probe.record.awaits import LOOK_EDGE_NS, MOST_WORK
from mcp_probe.record.raw import Job, JobLook

MOST_LOOKS = 64
"""Waits kept of one job; later ones have no name."""

STILL_INTERVALS = 2.2
"""A thread that waits for the GIL asks for it once in each of Python's switch intervals (5 ms), and runs for that. One
that was still for longer waits for something else."""

MOST_DEEP = 200

LEAST_WORK_NS = 1_000_000
"""CPU time between two looks that is counted for the line it is at. A share of the time would not do: a thread that
waits for the GIL among six others computes a sixth of the time."""

MOST_LINES = 32
"""Lines of one job at which it was seen computing; further ones are not told apart."""

_BRIEF = ("other", "lock")
"""What may take no time at all, so that a thread found there twice may have waited for the GIL meanwhile."""


class Names(Protocol):
    """Who names a stack."""

    def of_thread(self, frames: list[FrameType], called: str | None) -> tuple[Awaited, str | None]:
        """(what the innermost of ``frames`` waits for, file:line of the user's code); without any: ``called`` does."""


class _Look:
    """The last look at a job."""

    __slots__ = ("at_ns", "code", "cpu_ns", "instruction", "runs", "since_ns", "thing", "unsure", "where")

    def __init__(self, job: Job) -> None:
        self.at_ns = self.since_ns = job.start_ns or 0  # ``since_ns``: the thread has not run from then on
        self.cpu_ns = job.start_cpu_ns
        self.runs = -1
        self.code: CodeType | None = None
        self.instruction = -1
        self.thing: Awaited | None = None
        self.where: str | None = None
        self.unsure = False


class JobLooks:
    """See the module's text. One thread calls it."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._last: dict[Job, _Look] = {}

    def look(self, job: Job) -> None:
        """One look at a job that runs."""
        last = self._last.get(job)
        if last is None:
            last = self._last[job] = _Look(job)
        used = _used(job.native_id)
        now = now_ns()
        frames = frames_of(job)
        if frames is None or job.finish_ns is not None or not (frames or job.called):
            return
        code, instruction = (frames[0].f_code, frames[0].f_lasti) if frames else (None, 0)
        gap = now - last.at_ns
        worked = 0 if used is None else used[0] - last.cpu_ns
        same = code is last.code and instruction == last.instruction
        if same and used is not None and used[1] == last.runs and last.thing is not None:
            still = last.thing.kind in _BRIEF and now - last.since_ns >= _least_still_ns() and sleeps(job.native_id)
        else:
            thing, where = self._names.of_thread(frames, job.called)
            still = False
            last.unsure = thing.kind == "lock" and (thing is not last.thing or where != last.where)
            computed = worked >= LEAST_WORK_NS and thing.kind == "other"
            job.work_goes_on = None
            if computed and used is not None:
                _computed(job, (where, thing.name), worked, used[0])
            if worked > MOST_WORK * gap:
                last.since_ns = now
            elif last.thing is None:
                last.since_ns = max(last.at_ns + worked, now - LOOK_EDGE_NS)
            elif thing is last.thing and where == last.where and thing.kind not in _BRIEF:
                last.since_ns = last.at_ns
            else:
                last.since_ns = now
            last.thing, last.where = thing, where
        sure = still or last.thing.kind not in _BRIEF or (last.thing.thing is not None and is_taken(last.thing.thing()))
        last.unsure = last.unsure and not sure
        if job.looks is None and not last.unsure:
            job.looks = []
        last.code, last.instruction, last.at_ns = code, instruction, now
        if used is not None:
            last.cpu_ns, last.runs = used
        if last.since_ns < now and sure:
            self._waited(job, last.since_ns, now, last.cpu_ns, last.thing, last.where)

    def unsure(self, running: Iterable[Job]) -> list[Job]:
        """Jobs of which one more look tells whether they wait: such a draw is made to its end."""
        return [job for job in running if (last := self._last.get(job)) is not None and last.unsure]

    def forget(self, running: Iterable[Job]) -> None:
        """All jobs but these are over."""
        keep = set(running)
        self._last = {job: look for job, look in self._last.items() if job in keep}

    def clear(self) -> None:
        """All jobs are over."""
        self._last.clear()

    @staticmethod
    def _waited(job: Job, since: int, until: int, cpu: int, thing: Awaited, where: str | None) -> None:
        looks = job.looks or []
        known = looks[-1] if looks else None
        if known is not None and known.thing is thing and known.where == where and known.to_ns >= since:
            known.to_ns, known.cpu_ns = until, cpu
        elif len(looks) < MOST_LOOKS:
            job.looks = [*looks, JobLook(since, until, cpu, thing, where)]


def _computed(job: Job, key: tuple[str | None, str], worked: int, cpu: int) -> None:
    known = job.work or {}
    if key not in known and len(known) >= MOST_LINES:
        key = (None, "other")
    ns, looks = known.get(key, (0, 0))
    job.work = {**known, key: (ns + worked, looks + 1)}
    job.work_goes_on = key, cpu


def running_jobs(jobs: Iterable[Job]) -> list[Job]:
    """Those of ``jobs`` that run on a thread now."""
    return [job for job in list(jobs) if job.thread_id and job.finish_ns is None and not job.transport]


def frames_of(job: Job) -> list[FrameType] | None:
    """The job's own frames, innermost first: those of the thread down to where the probe calls the job.

    ``None``: the thread does something else by now.
    """
    frame: Any = frame_of(job.thread_id)
    frames: list[FrameType] = []
    while frame is not None and len(frames) < MOST_DEEP:
        if is_own(frame.f_code.co_filename):
            if frame.f_code.co_name == "run":
                return frames
        else:
            frames.append(frame)
        frame = frame.f_back
    return None


def _least_still_ns() -> float:
    return STILL_INTERVALS * sys.getswitchinterval() * 1e9


def sleeps(thread: int) -> bool:
    """Whether a thread sleeps. One that waits for a CPU does not."""
    try:
        return read(f"/proc/self/task/{thread}/stat").rpartition(b")")[2].split()[0] in (b"S", b"D")
    except (OSError, IndexError):
        return False


def _used(thread: int) -> tuple[int, int] | None:
    """(CPU ns of a thread, how often it was given a CPU), of the system's own count."""
    try:
        cpu, _, runs = read(f"/proc/self/task/{thread}/schedstat").split()
        return int(cpu), int(runs)
    except (OSError, ValueError):
        return None
