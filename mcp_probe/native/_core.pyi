"""Types of the compiled module. Request, Steps, Readings and PipeLooks have twins in Python, which say what each
member means.

A parameter takes the twin as well: mypy reads the package as if there were no accelerator. Names with an underscore
are only for the types here.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import FrameType, MappingProxyType
from typing import Any, Literal, TypeAlias

from mcp_probe.capture.loop_steps import Inherited, PythonSteps
from mcp_probe.capture.pipe_looks import PythonPipeLooker, PythonPipeLooks
from mcp_probe.capture.readings import PythonReadings
from mcp_probe.model import Outcome, RequestKind
from mcp_probe.record.raw import AwaitLook, AwaitMark, ClientWait, Job, PythonRequest, Spilled, StepMark

_AnyRequest: TypeAlias = Request | PythonRequest
_Requests: TypeAlias = list[Request] | list[PythonRequest]
_AnySteps: TypeAlias = Steps | PythonSteps
_AnyReadings: TypeAlias = Readings | PythonReadings
_AnyPipeLooks: TypeAlias = PipeLooks | PythonPipeLooks
_AnyPipeLooker: TypeAlias = PipeLooker | PythonPipeLooker
_Current: TypeAlias = ContextVar[PythonRequest | None]

class Request:
    id: int
    kind: RequestKind
    method: str
    name: str | None
    transport: str
    request_id: Any
    protocol_version: str | None
    session: Any
    channel: Any
    parent: Request | None
    outcome: Outcome
    error: str | None
    error_code: str | None
    jobs: Sequence[Job]
    pauses: Sequence[tuple[int, int]]
    client_waits: Sequence[ClientWait]
    awaits: Sequence[AwaitMark]
    looks: Sequence[AwaitLook]
    starved: Sequence[tuple[Literal["read", "write"], int, int, str, str]]
    write_waits: Sequence[tuple[int, int]] | None
    spilled: Spilled | None
    trace_id: int | None
    span_id: int | None
    parent_span_id: str | None
    trace_flags: int | None
    trace_state: str | None
    server_span: Literal["app", "probe"] | None
    resource_uri: str | None
    session_id: str | None
    sized: tuple[int | None, int | None] | None
    metered: Any
    measured: dict[str, int] | None
    ambient: Any
    lend_span: Callable[[dict[str, Any]], Any] | None
    settles: bool
    ended: bool
    transport_seen: bool
    new_connection: bool
    write_seen: bool
    partial: bool
    seen_open: bool
    seen: int
    handler: int
    detached_ns: int
    blocked_others_ns: int
    arrival_ns: int | None
    arrival_earliest_ns: int | None
    taken_ns: int | None
    first_step_ns: int | None
    result_ns: int | None
    write_taken_ns: int | None
    flushed_ns: int | None
    end_ns: int | None
    gone_ns: int | None
    sent_ns: int | None
    decode_ns: int | None
    encode_ns: int | None
    request_bytes: int | None
    response_bytes: int | None
    loop: int | None

    def __init__(self, id: int, kind: RequestKind, method: str, name: str | None, transport: str, /) -> None: ...
    @property
    def marks(self) -> list[StepMark]: ...  # a copy
    @property
    def units(self) -> MappingProxyType[int, int]: ...  # a copy
    @units.setter
    def units(self, units: dict[int, int], /) -> None: ...
    @property
    def operation(self) -> str: ...
    @property
    def mark_count(self) -> int: ...
    @property
    def unit_peak(self) -> int: ...
    def add_mark(self, mark: StepMark, /) -> None: ...
    def set_unit(self, unit: int, end_ns: int, /) -> None: ...
    def drop_unit(self, unit: int, /) -> None: ...
    def clear_marks(self) -> None: ...
    def end_at(self, now: int, /) -> bool: ...
    def small_steps(self) -> tuple[int, int]: ...
    def memory(self) -> tuple[int, int, int, int | None, int, int | None] | None: ...
    def keep_memory(self) -> Request: ...

class Steps:
    owner: Request | None
    meter: Any
    unit: int
    suspended: int
    earliest: int
    ready: int
    now: int
    poll_end: int
    looked: int
    event_earliest: int
    event_ready: int
    steps: int
    ordinal: int
    wake: int
    alive: bool
    shows: int
    may_wait: bool
    stretches: bool
    loop_id: int
    inherit: Inherited | None
    since: int

    def __init__(self) -> None: ...
    @property
    def polling(self) -> bool: ...
    @property
    def thread_id(self) -> int: ...
    def begin(self, owner: Request | None, unit: int, earliest: int, ready: int, wake: int, since: int, /) -> None: ...
    def close(self, now: int, done: bool, /) -> None: ...
    def stretch(self, now: int, /) -> None: ...
    def split(self, owner: Request | None, now: int, /) -> None: ...
    def begin_poll(self, now: int, /) -> None: ...
    def end_poll(self, now: int, /) -> None: ...
    def take_poll_counts(self, until: int | None, /) -> tuple[int, int, list[tuple[int, int, int]], int, int, int]: ...

class Readings:
    closed: bool

    def __init__(self, steps: _AnySteps, clock: int | None, schedstat: int, /) -> None: ...
    def read(self, now: int, /) -> tuple[int, int | None, int | None, int | None, int]: ...
    def before(self, at: int, /) -> tuple[int, int | None, int | None, int | None, int] | None: ...
    def close(self) -> None: ...

class PipeLooks:
    descriptor: int
    unattended: bool

    def __init__(self) -> None: ...
    def ready(self) -> int | None: ...
    def look(self) -> None: ...
    def begin(self) -> tuple[int | None, int, int]: ...
    def end(self, size: int, /) -> tuple[int, int]: ...
    def take(self) -> list[tuple[int, int, int]]: ...

class PipeLooker:
    def __init__(self) -> None: ...
    def look_at(self, pipes: tuple[_AnyPipeLooks, ...], /) -> None: ...
    def run(self) -> None: ...
    def close(self) -> None: ...

class Poll:
    """Stands for ``select`` on a selector, calls the original and tells the steps when it began and ended."""

    def __init__(self, steps: _AnySteps, original: Callable[..., Any], selector: object, /) -> None: ...
    @property
    def __wrapped__(self) -> Callable[..., Any]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def now_ns() -> int: ...
def configure(
    current: _Current,
    step: type,
    wakeup: type,
    task: type,
    function: type,
    /,
) -> None: ...
def handle_class(base: type, metaclass: type[type], /) -> type[Any]: ...
def follow(steps: _AnySteps, /) -> None: ...
def unfollow(steps: _AnySteps | None, /) -> None: ...
def park(
    watched: tuple[_AnyReadings, ...],
    limit_ns: int,
    wait_ns: int,
    most_ns: int,
    looker: _AnyPipeLooker,
    /,
) -> bool: ...
def wake() -> None: ...
def frame_of(thread_id: int, /) -> FrameType | None: ...
def measure_memory(hooks: object, /) -> None: ...
