"""What the fault matrix runs: workloads, how they are called, and on which transports, SDKs and machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Form = Literal["fault", "mended", "near", "healthy"]
Transport = Literal["stdio", "http"]
Sdk = Literal["mcp1", "mcp2", "fastmcp3"]
Beside = Literal["alone", "hog"]

FORMS: tuple[Form, ...] = ("fault", "mended", "near")
MOST_RUNS, FEW_RUNS = 20, 3


@dataclass(frozen=True, slots=True)
class Load:
    """Bursts: each sends all of ``calls`` (suffix of the tool -> how many) at once.

    ``waits_for``: when the client goes on. Answers that it does not wait for at once it awaits in the end; with
    "nothing" it never does, for the server cannot answer any more.
    """

    calls: tuple[tuple[str, int], ...]
    bursts: int
    pause_s: float = 0.0  # between two bursts
    waits_for: Literal["each burst", "all in the end", "nothing"] = "each burst"
    cancels_after_s: float | None = None  # the client wants no answers any more, and gets none
    reads_for_s: float = 0.0  # what the client does after each answer before it reads the next


@dataclass(frozen=True, slots=True)
class Workload:
    """A function of server.py. Of a healthy one ``code`` is ``None``.

    ``is_of_server``: the finding is about the server or a pool, so its subject is not a tool's name.
    ``verdicts``: codes that may be the verdict instead of its own.
    ``has_errors``: calls fail as they should.
    ``is_stateless``: its client is of 2026-07-28, so each of its calls stands alone.
    ``is_counted``: its finding rests on what is counted, not on a clock or statistics, so each run is like the next.
    """

    name: str
    code: str | None
    loads: dict[Form, tuple[Load, ...]]
    is_of_server: bool = False
    transports: tuple[Transport, ...] = ("stdio", "http")
    sdks: tuple[Sdk, ...] = ("mcp2", "mcp1")
    environment: dict[str, str] = field(default_factory=dict)
    verdicts: tuple[str, ...] = ()
    has_errors: bool = False
    is_stateless: bool = False
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload in one form under one condition."""

    workload: Workload
    form: Form
    transport: Transport
    sdk: Sdk
    beside: Beside

    @property
    def key(self) -> str:
        """Its name in the state file."""
        return "/".join((self.workload.name, self.form, self.transport, self.sdk, self.beside))

    @property
    def runs(self) -> int:
        """How many say enough: many where a clock judges, on one transport and SDK; few where others only repeat it."""
        is_judged_here = self.transport in self.workload.transports[:1] and self.sdk in self.workload.sdks[:1]
        return MOST_RUNS if is_judged_here and not self.workload.is_counted else FEW_RUNS


def _bursts(at_once: int, bursts: int, pause_s: float = 0.0) -> tuple[Load, ...]:
    return (Load((("", at_once),), bursts, pause_s),)


def _fault(
    code: str,
    fault: tuple[Load, ...],
    near: tuple[Load, ...] | None = None,
    mended: tuple[Load, ...] | None = None,
    *,
    is_of_server: bool = False,
    transports: tuple[Transport, ...] = ("stdio", "http"),
    sdks: tuple[Sdk, ...] = ("mcp2", "mcp1"),
    environment: dict[str, str] | None = None,
    verdicts: tuple[str, ...] = (),
    has_errors: bool = False,
    is_stateless: bool = False,
    is_counted: bool = False,
) -> Workload:
    loads: dict[Form, tuple[Load, ...]] = {"fault": fault, "mended": mended or fault, "near": near or fault}
    return Workload(
        code.replace("-", "_"),
        code,
        loads,
        is_of_server,
        transports,
        sdks,
        environment or {},
        verdicts,
        has_errors,
        is_stateless,
        is_counted,
    )


def _read_for(seconds: float) -> tuple[Load, ...]:
    return (Load((("", 4),), 10, reads_for_s=seconds),)


_CANCELLED = (Load((("", 3),), 1, 3.0, cancels_after_s=0.3),)
_ROUNDS = (Load((("", 4),), 24, 0.25, "all in the end"),)
_BLOCKED = (Load((("_holder", 1), ("", 4)), 12),)
_IN_TURN = (Load((("_holder", 1),), 6), Load((("", 4),), 20))

FAULTS: tuple[Workload, ...] = (
    _fault("blocking-call", _bursts(3, 14)),
    _fault("cpu-bound-step", _bursts(3, 14)),
    _fault("head-of-line", _BLOCKED, near=_IN_TURN, verdicts=("blocking-call",)),
    _fault("crowding", _bursts(8, 6), near=_bursts(1, 34), is_of_server=True),
    _fault("busy-spin", _bursts(1, 2), near=_bursts(2, 16), mended=_bursts(2, 16)),
    _fault("serial-handler", _bursts(6, 8)),
    _fault("pool-exhausted", _bursts(6, 12), near=_bursts(2, 24)),
    _fault(
        "client-per-request",
        _bursts(2, 20),
        verdicts=("cpu-bound-step", "head-of-line"),  # of the line that makes it
        is_counted=True,
    ),
    _fault("serial-awaits", _bursts(4, 10)),
    _fault("slow-backend", _bursts(10, 4), verdicts=("healthy",)),  # info: it is not this server that is slow
    _fault("long-wait", _bursts(8, 8)),
    _fault("unexplained-wait", _bursts(1, 40)),
    _fault("cold-start", _bursts(1, 60), verdicts=("healthy",)),  # info
    _fault("cold-start-stampede", _bursts(3, 20), near=(*_bursts(1, 1), *_bursts(3, 20))),
    _fault("gc-pause", _bursts(1, 34), is_of_server=True),
    _fault("executor-saturated", _bursts(8, 12), near=_bursts(2, 24), is_of_server=True),
    _fault(
        "transport-starvation",
        _bursts(60, 4),
        near=_bursts(20, 4),
        is_of_server=True,
        transports=("stdio",),
        sdks=("mcp2",),
    ),
    _fault(
        "serial-client",
        _bursts(1, 60),
        near=_bursts(1, 40, 0.01),
        mended=_bursts(8, 10),
        is_of_server=True,
        verdicts=("healthy",),  # info
    ),
    _fault("chatty-notifications", _bursts(2, 20), transports=("stdio",), is_counted=True),
    _fault("memory-growth", _bursts(2, 50), environment={"MCP_PROBE_MEMORY": "leaks"}),
    _fault(
        "memory-peak",
        _bursts(1, 34, 0.02),
        verdicts=("cpu-bound-step",),  # of the line that fills the memory
        is_counted=True,
    ),
    _fault("large-payload", _bursts(2, 16), is_counted=True),
    _fault(
        "unbounded-fan-out",
        _bursts(1, 4),
        verdicts=("cpu-bound-step",),  # of the step that starts the tasks
        is_counted=True,
    ),
    _fault("schema-lookup", _bursts(2, 20), transports=("http",), sdks=("mcp2",), is_stateless=True),
    _fault("gil-contention", _bursts(2, 30), is_of_server=True),
    _fault("own-threads", _bursts(2, 30), is_of_server=True),
    _fault("host-pressure", _bursts(2, 30), is_of_server=True),
    _fault("slow-reader", _read_for(0.15), near=_read_for(0.01), mended=_read_for(0.0), transports=("stdio",)),
    _fault(
        "abandoned-work", _CANCELLED, transports=("stdio",), has_errors=True, is_counted=True
    ),  # mcp 1.x answers that it cancelled
    _fault(
        "dispatch-backlog", _ROUNDS, near=(Load((("", 40),), 1, 0.25, "all in the end"), *_ROUNDS), is_of_server=True
    ),
    _fault("stdout-pollution", _bursts(1, 34), is_of_server=True, transports=("stdio",), is_counted=True),
    _fault(
        "slow-error-logging",
        _bursts(1, 34),
        near=(Load((("", 2),), 1),),
        sdks=("mcp2",),
        has_errors=True,
        is_counted=True,
    ),
    _fault("crashed", (*_bursts(1, 34), Load((("_last", 1),), 1, 1.0, "nothing")), is_of_server=True, is_counted=True),
    _fault(
        "not-enough-data",
        (Load((("", 5),), 1),),
        mended=_bursts(2, 40),
        near=_bursts(1, 30),
        is_of_server=True,
        is_counted=True,
    ),
)


def _healthy(
    name: str,
    loads: tuple[Load, ...],
    transports: tuple[Transport, ...] = ("stdio", "http"),
    sdks: tuple[Sdk, ...] = ("mcp2", "mcp1"),
) -> Workload:
    return Workload(f"healthy_{name}", None, {"healthy": loads}, transports=transports, sdks=sdks)


HEALTHY: tuple[Workload, ...] = (
    _healthy("cache", _bursts(4, 30, 0.02)),
    _healthy("pages", _bursts(3, 30, 0.02)),
    _healthy("shared_client", _bursts(4, 30, 0.02)),
    _healthy("chunks", _bursts(2, 30, 0.02)),
    _healthy("busy_loop", _bursts(4, 30, 0.02)),
    _healthy("sync_tools", _bursts(3, 40, 0.02)),
    _healthy("background", _bursts(4, 30, 0.02)),
    _healthy("sampling", _bursts(2, 30, 0.02), transports=("stdio",)),  # over HTTP our client reads no requests
    _healthy("warm_start", _bursts(4, 30, 0.02)),
    _healthy("mounted", _bursts(4, 30, 0.02), sdks=("fastmcp3",)),
)

WORKLOADS = (*FAULTS, *HEALTHY)


def cells_of(
    workloads: tuple[Workload, ...],
    transports: tuple[Transport, ...],
    sdks: tuple[Sdk, ...],
    beside: tuple[Beside, ...],
) -> Iterator[Cell]:
    """Each cell that makes sense of these; fastmcp has its one workload where mcp 2.x is asked for."""
    for workload in workloads:
        for transport in workload.transports:
            for sdk in workload.sdks:
                asked = sdk in sdks or (sdk == "fastmcp3" and "mcp2" in sdks)
                if transport in transports and asked:
                    for form in workload.loads:
                        for each in beside:
                            yield Cell(workload, form, transport, sdk, each)
