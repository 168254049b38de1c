"""Options of a probe: keywords of ``attach``, each also an environment variable ``MCP_PROBE_<NAME>``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from mcp_probe.errors import OptionError
from mcp_probe.model import MeasureTier, MemoryTier
from mcp_probe.record.parts import bytes_of

TelemetryMode = Literal["auto", "off", "enrich", "relay"]
CONTENT_KINDS = ("arguments", "result", "prompt", "resource")
"""What ``capture_content`` may name; nothing of it leaves the process unless named."""

NOT_FROM_ENVIRONMENT = frozenset({"redact"})
SWITCHES = ("awaits", "full", "live", "dump_signal", "replay_histograms", "await_hosts", "resources")
_NUMBERS = {
    "slow_step_ms": "a number of milliseconds",
    "wait_ms": "a number of milliseconds",
    "otlp_exit_ms": "a number of milliseconds",
    "slow_request_ms": "a number of milliseconds",
    "detail": "a share from 0 to 1",
    "flight_seconds": "a number of seconds",
    "flight_factor": "a number",
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of ``attach``.

    Attributes:
        slow_step_ms: A step this long on the event loop is looked into.
        report: Where the report goes at exit: ``"stderr"`` or a path.
        record: A path that gets every frame.
        record_limit: Keep the newest frames within this size, such as ``"500MB"`` or a number of bytes. They are in
            several files then, which every command reads as one (docs/recordings.md). ``None``: no limit.
        full: Record what each request's tasks and jobs did one by one, too (docs/timeline.md). The recording is several
            times larger. Nothing else changes.
        live: Let this user's `mcp-probe top` watch the running server (docs/live.md): a Unix socket in a folder that
            only he may enter. Nothing is computed while nobody watches.
        flight: A folder. The last seconds are kept in memory, and written there as a recording when a request is slow,
            when a finding is raised, or when somebody asks (docs/flight-recorder.md).
        flight_seconds: How many seconds are kept, as far as they fit into 4 MB.
        flight_factor: A request is written about when it takes so many times its operation's p99.
        dump_signal: SIGUSR1 has the flight recording written, where nobody else handles that signal.
        memory: What is measured of each request's memory. ``"light"``: bytes requested, and peak and retained of
            blocks above 512 bytes with bounds for the rest. ``"detailed"``: of every block, and the sizes of some
            arguments and results. ``"leaks"``: a hunt for tools that keep what they allocate, which makes the server
            several times slower. ``"off"``: nothing.
            Several probes in one process share one allocator: the highest of what they ask for is measured.
        measures: What is read of each request besides (docs/how-it-measures.md, "Measures"). ``"light"``: what costs
            next to nothing. ``"detailed"``: also what takes a system call a step. ``"off"``: nothing.
        awaits: Say what requests wait for while they are suspended (docs/awaits.md). ``False``: nothing that is awaited
            is hooked, no thread looks at suspended tasks, and no output claims anything. Probes in one process share
            the hooks: they are there from the first probe that wants them on, until the last probe has gone.
        wait_ms: A wait of at least this is kept by itself, with its holders; shorter ones are summed. The first probe
            of a process decides.
        resources: Add ``probe://report`` and ``probe://findings`` to the resources of attached servers
            (docs/resources.md): every client of the server may read them.
        otlp: ``True`` sends spans and metrics as the ``OTEL_*`` environment variables say, a URL sends them there;
            signals for which the application has set a provider go to that instead. Needs the extra ``otel``.
        telemetry: ``"auto"`` uses the application's OpenTelemetry providers as soon as there are any, ``"enrich"``
            only adds to spans that are open anyway, ``"off"`` stays away from OpenTelemetry, ``"relay"`` leaves
            exporting to the process that gets the frames (``mcp-probe run --otlp``). All but ``"auto"`` overrule
            ``otlp``.
        otlp_exit_ms: What the last delivery may add to the process's exit, where ``otlp`` set up the exporters.
        slow_request_ms: From which duration on a request gets phase spans; by default the larger of 1 s and the
            running p99 of its tool.
        detail: Share of the other requests that get them too, 0 to 1.
        replay_histograms: Record every value of our histograms once more with the application's meter provider, so that
            its views apply, instead of sending counts, sums and quantiles; takes about 50 µs of CPU a request.
        await_hosts: Divide the metric of what is awaited by ``server.address``, too; at most 50 hosts have one.
        capture_content: Names among :data:`CONTENT_KINDS` that may appear on spans. Empty: no content anywhere.
        redact: Called with (kind, value), returns what may be shown; ``None`` shows nothing. Kinds are those of
            captured content, ``"host"`` (``scheme://host:port`` of a backend that is awaited) and ``"program"`` (the
            name of one that is started). Not from the environment.
    """

    slow_step_ms: float = 10.0
    report: str | None = None
    record: str | None = None
    record_limit: int | str | None = None
    full: bool = False
    live: bool = False
    flight: str | None = None
    flight_seconds: float = 60.0
    flight_factor: float = 3.0
    dump_signal: bool = False
    memory: MemoryTier = "light"
    measures: MeasureTier = "light"
    awaits: bool = True
    wait_ms: float = 5.0
    resources: bool = False
    otlp: bool | str = False
    telemetry: TelemetryMode = "auto"
    otlp_exit_ms: float = 1_000.0
    slow_request_ms: float | None = None
    detail: float = 0.0
    replay_histograms: bool = False
    await_hosts: bool = False
    capture_content: tuple[str, ...] = ()
    redact: Callable[[str, Any], Any] | None = None

    def __post_init__(self) -> None:
        _check_number("slow_step_ms", self.slow_step_ms, 0.5, 3_600_000)
        _check_number("wait_ms", self.wait_ms, 0.5, 3_600_000)
        _check_number("otlp_exit_ms", self.otlp_exit_ms, 0, 60_000)
        if self.slow_request_ms is not None:
            _check_number("slow_request_ms", self.slow_request_ms, 0, 3_600_000)
        if not isinstance(self.detail, (int, float)) or not 0 <= self.detail <= 1:
            raise OptionError(f"detail is {self.detail!r}; expected a share from 0 to 1.")
        for name in ("report", "record", "flight"):
            path = getattr(self, name)
            if not isinstance(path, (str, os.PathLike, type(None))):
                what = 'a path or "stderr"' if name == "report" else "a path"
                raise OptionError(f"{name} is {path!r}; expected {what}.")
        if self.record_limit is not None:
            bytes_of(self.record_limit)
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r}; expected True or False.")
        self._check_flight()
        check_tier(self.memory)
        if self.measures not in get_args(MeasureTier):
            known = ", ".join(f'"{each}"' for each in get_args(MeasureTier))
            raise OptionError(f"measures is {self.measures!r}; expected one of {known}.")
        self._check_telemetry()
        self._check_content()

    def _check_flight(self) -> None:
        _check_number("flight_seconds", self.flight_seconds, 1, 3_600, "seconds")
        _check_number("flight_factor", self.flight_factor, 1, 1_000, "times the p99")
        if self.dump_signal and self.flight is None:
            raise OptionError("dump_signal was given without flight. Say where recordings go: flight=DIR.")

    def _check_telemetry(self) -> None:
        if self.telemetry not in get_args(TelemetryMode):
            known = ", ".join(f'"{mode}"' for mode in get_args(TelemetryMode))
            raise OptionError(f"telemetry is {self.telemetry!r}; expected one of {known}.")
        if isinstance(self.otlp, str):
            check_endpoint(self.otlp)
        if not isinstance(self.otlp, (bool, str)):
            raise OptionError(f'otlp is {self.otlp!r}; expected True, False or a URL such as "http://localhost:4318".')

    def _check_content(self) -> None:
        if isinstance(self.capture_content, str) or not isinstance(self.capture_content, (tuple, list, set, frozenset)):
            raise OptionError(f"capture_content is {self.capture_content!r}; expected a tuple of names.")
        unknown = sorted(set(map(str, self.capture_content)) - set(CONTENT_KINDS))
        if unknown:
            raise OptionError(f"capture_content names {unknown[0]!r}; expected names among {', '.join(CONTENT_KINDS)}.")
        if self.redact is not None and not callable(self.redact):
            raise OptionError(f"redact is {self.redact!r}; expected a function of (kind, value).")

    @classmethod
    def from_environment(cls, given: Mapping[str, Any]) -> Options:
        """``given``, completed from ``MCP_PROBE_*``. Raises: OptionError for unknown names and bad values."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise OptionError(f"Unknown option {unknown[0]!r}; known options are {', '.join(sorted(known))}.")
        values = dict(given)
        for name in known - NOT_FROM_ENVIRONMENT:
            text = os.environ.get(f"MCP_PROBE_{name.upper()}")
            if text and values.get(name) is None:
                values[name] = _parse(name, text)
        return cls(**{name: value for name, value in values.items() if value is not None})


def check_tier(tier: object) -> None:
    """Raises: OptionError where ``tier`` is no tier of memory measurement."""
    if tier not in get_args(MemoryTier):
        known = ", ".join(f'"{each}"' for each in get_args(MemoryTier))
        raise OptionError(f"memory is {tier!r}; expected one of {known}.")


def check_endpoint(endpoint: str) -> None:
    """Raises: OptionError where ``endpoint`` is no URL that an OTLP exporter could send to."""
    try:
        parts = urlsplit(endpoint)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise OptionError(
            f"otlp is {endpoint!r}; expected a URL with http or https, such as http://localhost:4318 (OTLP over HTTP) "
            "or http://localhost:4317 (gRPC)."
        )


def parse_otlp(text: str) -> bool | str:
    """The value of ``otlp`` in an environment variable or on a command line. Raises: OptionError."""
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    check_endpoint(text.strip())
    return text.strip()


def _check_number(name: str, value: object, least: float, most: float, unit: str = "milliseconds") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        limits = f"{least:g} to {most:,.0f}".replace(",", " ")
        raise OptionError(f"{name} is {value!r}; expected a number of {unit} from {limits}.")


def _parse(name: str, text: str) -> Any:
    if name == "otlp":
        return parse_otlp(text)
    if name == "capture_content":
        return tuple(part for part in (part.strip() for part in text.split(",")) if part)
    if name in SWITCHES:
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise OptionError(f"MCP_PROBE_{name.upper()} is {text!r}; expected 1 or 0.")
        return word in _TRUE
    if name not in _NUMBERS:
        return text
    try:
        return float(text)
    except ValueError:
        what = _NUMBERS[name]
        raise OptionError(f"MCP_PROBE_{name.upper()} is {text!r}; expected {what}.") from None
