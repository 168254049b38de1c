"""What a window asked for: the work of each request in its order, and what it had to share. No wait is in here.

Invariants: every time is a demand, in nanoseconds: a run on the event loop, a run on a thread, a stretch outside, or
the fixed cost of a hop between threads. How long anything waited for the loop, a thread, a lock, a connection or the
writer is what a simulation of this gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

# How a step becomes ready, once the step before it has ended; ``Step.arg`` says of what.
DELAY = 0  # so many ns later: what happens outside takes as long as it took
HOLD = 1  # the resource of this number has a free place
JOB = 2  # the job of this number has ended
SIGNALLED = 3  # another task of its request has given this signal

# What a step does. The event loop sees it at the end of the step, for nothing else runs meanwhile.
SPAWN = 0  # starts the unit of this number
SUBMIT = 1  # hands the job of this number to its pool
RELEASE = 2  # gives a place of the resource of this number back
SIGNAL = 3
ANSWER = 4  # hands the result to the transport

TAKEN = -1
"""The signal that the writer gives once it has taken a request's answer."""

Act = tuple[int, int]


class Step(NamedTuple):
    """One run of a task on the event loop."""

    after: int
    arg: int
    run_ns: int
    begins: tuple[Act, ...] = ()
    ends: tuple[Act, ...] = ()
    about: str = ""  # what it awaited before; steps with the same one are alike
    late_ns: int = 0  # it came later than all that was at work in the process explains: the host
    cpu_ns: int = -1  # of ``run_ns``; -1: not known
    is_free: bool = False  # what it computed was C code that let other threads have the GIL
    idle_ns: int = 0  # of ``run_ns``: it neither computed nor could, so nobody waited for its GIL
    stops: int = 0  # in so many pieces
    gc_ns: int = 0  # of ``run_ns``: the garbage collector


class Work(NamedTuple):
    """One call on a worker thread. ``claims``: it takes its thread as it is submitted, and gives it back at its end."""

    pool: int  # number of a resource; -1: threads without a limit
    hop_ns: int  # from the submission to the thread, once there is one
    outside_ns: int
    cpu_ns: int  # holds the GIL
    back_ns: int  # from the thread to the event loop
    claims: bool
    free_ns: int = 0  # computes without the GIL: takes a processor
    parts: int = 1  # outside and computing take turns so often


Unit = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """The fixed cost of a message's way through the transport. ``..._ns`` off the loop, ``..._run_ns`` on it.

    ``rest_run_ns``: what the loop does for it besides, once the answer is out. ``connects``: on a new connection.
    """

    in_ns: int = 0
    in_run_ns: int = 0
    out_run_ns: int = 0
    out_ns: int = 0
    rest_run_ns: int = 0
    connects: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``after``: the calls whose answers its client had when it sent this one, ``sent_ns`` after the last
    of them; without any, ``sent_ns`` counts from the window's start."""

    number: int  # RequestRecord.id
    operation: str
    way: Way
    units: tuple[Unit, ...]
    jobs: tuple[Work, ...]
    after: tuple[int, ...]  # positions in ``Workload.calls``
    sent_ns: int
    took_ns: int | None  # arrival to end as it was measured; None: it is load, and nobody waited for it
    answers: bool = True
    session: int = 0  # which has one reader of messages, and one router of answers; 0: one of its own


ResourceKind = Literal["threads", "lock", "places"]


@dataclass(frozen=True, slots=True)
class Resource:
    """What only so many can have at once."""

    name: str
    kind: ResourceKind
    limit: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A window. ``background``: (at_ns, run_ns) of steps of no request.

    ``transport``: "one by one" has one reader and one writer (stdio), which take threads of ``transport_pool``.
    """

    calls: tuple[Call, ...]
    resources: tuple[Resource, ...]
    background: tuple[tuple[int, int], ...] = ()
    transport: Literal["one by one", "side by side"] = "side by side"
    transport_pool: int = -1
    arrivals: str = ""  # a sentence: what was taken for what clients do
    is_closed: bool = False
    hop_ns: int = 100_000  # what a hop to a thread and back takes where no job was seen
    step_ns: int = 200_000  # a step that does not block, where one is needed
    processors: int = 0  # that the process may use; 0: not known
