"""The command line: arguments in, public API out. The only module that prints or chooses an exit code.

Exit codes: 0 fine; 1 what --fail-on or --max-regression asks for, or no way to know; 2 bad use; 3 unreadable recording,
baseline or other file. `mcp-probe run` ends as the command it ran: with its exit code, or by the signal that ended it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from mcp_probe.arguments import Declared, add_looks, milliseconds
from mcp_probe.errors import LaunchError, OptionError, ProbeError, RecordingError

if TYPE_CHECKING:
    from mcp_probe.aggregate.fail_on import Rule
    from mcp_probe.aggregate.gate import Judgement
    from mcp_probe.export.exporters import TelemetrySettings
    from mcp_probe.launch.inside.visit import Visited, Wish
    from mcp_probe.launch.outcome import Outcome
    from mcp_probe.launch.outside.shapes import Look
    from mcp_probe.model import Summary
    from mcp_probe.options import Options
    from mcp_probe.report.page.window import Window
    from mcp_probe.report.page.written import PageWriter
    from mcp_probe.report.tracks import TrackReader, Tracks

OK, FINDINGS, BAD_USE, UNREADABLE = 0, 1, 2, 3
INTERRUPTED = 128 + signal.SIGINT
_READERS = ("report", "compare", "query", "what-if")

# Of the 0.5 s we may add to the command's exit; the rest is for the last frames and for the report itself.
_STDERR_PATIENCE_S = 0.2
_PREPARE_PATIENCE_S = 2.0  # what `prepare` loads is loaded long before, unless the command ended at once

# Of a full recording of this size findings get their predicted gains at the exit (0.1 s); of a longer one by `report`.
_PREDICTED_BYTES = 400_000

_EXAMPLES = """\
examples:
  mcp-probe demo                                      see what a report looks like
  mcp-probe run -- python server.py                   profile a stdio or HTTP server as it is
  mcp-probe run --record calls.jsonl -- my-mcp-server
  mcp-probe attach 4711                               a server that hangs now: look into it, without a restart
  mcp-probe report calls.jsonl                        the report again, from the recording
  mcp-probe what-if calls.jsonl --offload resize      what would a change give? (--record FILE --full)
  mcp-probe doctor -- my-mcp-server                   can it be profiled, and how exactly?

In a desktop client's configuration, put `mcp-probe run --` before the server's own command:
  "command": "mcp-probe", "args": ["run", "--output", "/tmp/report.txt", "--", "my-mcp-server"]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (default: this process's) and returns the exit code.

    May end the process instead of returning: by the signal that ended the command of `mcp-probe run`.
    """
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED


def _main(arguments: list[str]) -> int:
    arguments, command = _split_command(arguments)
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "action"):
        parser.print_help(sys.stderr)
        return BAD_USE
    if command is not None:
        if not hasattr(options, "command"):
            parser.error(f"mcp-probe {options.name} takes no command after `--`.")
        options.command = [*options.command, "--", *command] if options.command else command
    try:
        action: Callable[[argparse.Namespace], int] = options.action
        return action(options)
    except ProbeError as exc:
        _complain(str(exc))
        return UNREADABLE if isinstance(exc, RecordingError) else BAD_USE
    except BrokenPipeError:
        _give_up_stdout()
        return OK
    except Exception as exc:
        if options.name not in _READERS or sys.flags.dev_mode:
            raise
        _complain(
            _damage(options)
            or f"What was read cannot be understood ({type(exc).__name__}: {exc}). Expected files as mcp-probe writes "
            "them; these were edited or damaged. If they were not, please report this, with what "
            "`python -X dev -m mcp_probe` says of them."
        )
        return UNREADABLE


def _damage(options: argparse.Namespace) -> str:
    """What is wrong with the recordings that could not be understood."""
    from mcp_probe.record.damage import first_fault

    given = [getattr(options, name, None) for name in ("file", "files", "before", "after")]
    return first_fault(path for some in given if some for path in (some if isinstance(some, list) else [some]))


def _split_command(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """What stands before and after the first `--`; what follows belongs to the command, whatever it looks like."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


# --- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcp-probe",
        description="Where did each request's time go in an MCP server, and which other request took it?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="name")
    for name, (declared, action) in _commands().items():
        command = commands.add_parser(
            name,
            help=declared.help,
            usage=declared.usage,
            description=declared.description,
            epilog=declared.examples,  # which keep their lines
            formatter_class=argparse.RawDescriptionHelpFormatter if declared.examples else argparse.HelpFormatter,
            allow_abbrev=False,
        )
        declared.options(command)
        if declared.has_looks:
            add_looks(command)
        command.set_defaults(action=action)
    return parser


class _Version(argparse.Action):
    """Asks the package for its version only when somebody wants to know."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *unused: object) -> NoReturn:
        from mcp_probe import __version__

        print(f"mcp-probe {__version__}")
        parser.exit()


def _commands() -> dict[str, tuple[Declared, Callable[[argparse.Namespace], int]]]:
    """Each command, and what does it."""
    from mcp_probe.compare.arguments import COMPARE
    from mcp_probe.completion import COMPLETION
    from mcp_probe.init.arguments import INIT
    from mcp_probe.launch.arguments import DOCTOR, RUN
    from mcp_probe.launch.inside.arguments import ATTACH
    from mcp_probe.predict.arguments import WHAT_IF
    from mcp_probe.query.arguments import QUERY
    from mcp_probe.report.arguments import REPORT
    from mcp_probe.top.arguments import TOP
    from mcp_probe.workloads.arguments import DEMO
    from mcp_probe.workloads.bench.arguments import BENCH
    from mcp_probe.workloads.load.arguments import LOAD

    return {
        "run": (RUN, _run),
        "attach": (ATTACH, _attach),
        "report": (REPORT, _report),
        "demo": (DEMO, _demo),
        "bench": (BENCH, _bench),
        "load": (LOAD, _load),
        "compare": (COMPARE, _compare),
        "query": (QUERY, _query),
        "top": (TOP, _top),
        "what-if": (WHAT_IF, _what_if),
        "doctor": (DOCTOR, _doctor),
        "init": (INIT, _init),
        "completion": (COMPLETION, _completion),
    }


# --- commands -------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    _require_posix()
    from mcp_probe.launch.parent import find_program, run_command
    from mcp_probe.record.parts import bytes_of

    find_program(options.command)  # before any file is emptied
    _check_distinct(options)
    asked = _asked(options)
    tiers = _tiers(asked)
    gate = _Gate(options)
    publisher = _Publisher(options.output, options.json, options.html, gate, options.record if asked.full else None)
    outcome = run_command(
        options.command,
        publish=publisher.publish,
        prepare=publisher.prepare,
        record=options.record,
        record_limit=None if asked.record_limit is None else bytes_of(asked.record_limit),
        slow_step_ms=_slow_step_ms(options.slow_step_ms),
        tiers=tiers,
        relay=_relay(asked, options),
        window=_window if options.html is not None else None,
    )
    _deliver(gate.told())
    exit_code = outcome.exit_code or 0
    if exit_code < 0:
        _die_by(-exit_code)
    return exit_code or gate.exit_code()


def _attach(options: argparse.Namespace) -> int:
    _require_posix()
    from mcp_probe.launch.inside.arguments import check
    from mcp_probe.launch.outside.look import look
    from mcp_probe.launch.outside.target import find

    check(options)
    wish = None if options.look else _wish(options)
    target = find(options.pid)  # before any file is emptied
    _check_distinct(options)
    gate = _Gate(options)
    seen = look(target)
    if wish is None:
        _show_look(seen, options)
        return OK
    from mcp_probe.launch.inside.visit import visit

    _try_first(*(path for path in (options.json, options.html) if path != "-"))
    if options.json != "-":
        _show_look(seen, options)
    visited = visit(target, wish, tell=_complain)
    gate.judge([report.summary for report in visited.reports], visited.failures)
    try:
        _show_visited(visited, options)
    except BrokenPipeError:  # the exit code must be the gate's all the same
        _give_up_stdout()
    _deliver(gate.told())
    return gate.exit_code()


def _wish(options: argparse.Namespace) -> Wish:
    """What `mcp-probe attach` shall do in the server."""
    from mcp_probe.launch.inside.visit import Wish
    from mcp_probe.record.parts import bytes_of

    asked = _asked(options)
    return Wish(
        options={name: getattr(asked, name) for name in ("memory", "measures", "awaits", "full")},
        slow_step_ms=_slow_step_ms(options.slow_step_ms),
        seconds=options.seconds,
        patience_s=options.seconds,
        wake=options.wake,
        record=options.record,
        record_limit=None if asked.record_limit is None else bytes_of(asked.record_limit),
        relay=_relay(asked, options),
        window=None if options.html is None else _window,
    )


def _try_first(*paths: Path | str | None) -> None:
    """As :func:`_open_first`; what is there stays until there is something to write. Raises: OptionError."""
    from mcp_probe.record.private_file import check

    for path in paths:
        if path is None:
            continue
        is_new = not os.path.lexists(path)
        check(Path(path))
        if is_new:
            os.unlink(path)


def _open_first(*paths: Path | str | None) -> None:
    """First of all, so that a bad path starts nothing. Raises: OptionError."""
    from mcp_probe.record.private_file import opened

    for path in paths:
        if path is not None:
            opened(Path(path)).close()


def _show_look(seen: Look, options: argparse.Namespace) -> None:
    from mcp_probe.launch.outside.told import as_json, as_text

    if not options.look or options.json != "-":
        sys.stdout.write(as_text(seen, sys.stdout, width=options.width, color=False if options.no_color else None))
        sys.stdout.flush()
    if options.look and options.json is not None:
        import json

        text = json.dumps(as_json(seen), indent=2) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
            return
        from mcp_probe.record.private_file import opened

        with opened(Path(options.json)) as stream:
            stream.write(text)


def _show_visited(visited: Visited, options: argparse.Namespace) -> None:
    """One report: a server that is entered is one process. It has its keys where nothing was measured, too."""
    from mcp_probe.aggregate.fold import Fold
    from mcp_probe.aggregate.phrasing import CAME_LATER

    report = visited.reports[0] if visited.reports else None
    summary = Fold().summary() if report is None else report.summary
    sentences = [sentence for sentence in visited.sentences if sentence]
    summary = replace(summary, came_later=True, notes=(*summary.notes, CAME_LATER, *sentences))
    if options.html is not None:
        _write_pages([(summary, None if report is None else report.window)], Path(options.html))
        options.html = None  # the text is wanted all the same
    _show(summary, options)
    for sentence in sentences:
        _complain(sentence)


def _relay(asked: Options, options: argparse.Namespace) -> TelemetrySettings | None:
    """Where telemetry goes, from --otlp or MCP_PROBE_OTLP."""
    if not asked.otlp:
        return None
    from mcp_probe.export.exporters import TelemetrySettings

    return TelemetrySettings(
        otlp=asked.otlp,
        exit_s=asked.otlp_exit_ms / 1e3,
        slow_step_ms=_slow_step_ms(options.slow_step_ms),
        slow_request_ms=asked.slow_request_ms,
        detail=asked.detail,
        await_hosts=asked.await_hosts,
    )


def _report(options: argparse.Namespace) -> int:
    _check_distinct(options)
    _check_number(options)
    gate = _Gate(options)
    read = [_read(path, options) for path in options.files]
    summaries = [summary for summary, _, _ in read]
    gate.judge(summaries)
    try:
        if options.html is not None:
            _write_pages([(summary, window) for summary, window, _ in read], options.html)
        for path, summary in zip(options.files, summaries, strict=True):
            _show(summary, options, path if len(read) > 1 else None)
    except BrokenPipeError:  # the exit code must be the gate's all the same
        _give_up_stdout()
    for _, _, tracks in read:
        if tracks is not None:
            _draw(tracks.tracks(), options)
    _deliver(gate.told())
    return gate.exit_code()


def _read(path: Path, options: argparse.Namespace) -> tuple[Summary, Window | None, TrackReader | None]:
    """One recording, taken in by whoever shows something of it."""
    from mcp_probe.aggregate.fold import Fold
    from mcp_probe.predict.gains import Collected
    from mcp_probe.record.parts import read_parts
    from mcp_probe.workloads.status_line import StatusLine

    fold = Fold(slow_step_ms=_slow_step_ms(options.slow_step_ms))
    window = None if options.html is None else _window()
    tracks = _track_reader(options)
    collected = Collected()
    takers = [taker.add for taker in (fold, window, tracks, collected) if taker is not None]
    with StatusLine(sys.stderr, "report") as status:
        for frame in read_parts(path, status.share_of(path.name)):
            for take in takers:
                take(frame)
    return collected.predicted(fold.summary()), window, tracks


def _check_number(options: argparse.Namespace) -> None:
    """What has no place for more than one recording says so before any is read."""
    for name in ("json", "trace", "speedscope"):
        if len(options.files) > 1 and getattr(options, name) is not None:
            raise OptionError(
                f"--{name} takes one recording, and {len(options.files)} were given. Name one FILE at a time; "
                "--html shows several on one page."
            )


def _track_reader(options: argparse.Namespace) -> TrackReader | None:
    """For --trace and --speedscope."""
    since, until = options.since, options.until
    if options.trace is None and options.speedscope is None:
        if since is not None or until is not None:
            raise OptionError(
                "--from and --to were given without --trace. They say what a trace shows: add --trace FILE."
            )
        return None
    if (since or 0.0) >= (float("inf") if until is None else until):
        raise OptionError(f"--from {since or 0:g} --to {until:g} is no window. Give a --to that is larger.")
    from mcp_probe.report.tracks import TrackReader

    return TrackReader((since or 0.0, float("inf") if until is None else until))


def _draw(tracks: Tracks, options: argparse.Namespace) -> None:
    """Writes what --trace and --speedscope ask for, and says on stderr what it leaves out."""
    from mcp_probe.record.private_file import opened
    from mcp_probe.report import speedscope, trace

    for path, module in ((options.trace, trace), (options.speedscope, speedscope)):
        if path is not None:
            with opened(path) as stream:
                module.write(tracks, stream)
    for note in tracks.notes:
        _complain(note)


def _show(summary: Summary, options: argparse.Namespace, path: Path | None = None) -> None:
    """``path``: of several recordings, this one."""
    if options.json == "-":
        return _write_json(summary, sys.stdout)
    if options.json is not None:
        from mcp_probe.record.private_file import opened

        with opened(Path(options.json)) as stream:
            _write_json(summary, stream)
    if options.html is None:
        if path is not None:
            sys.stdout.write(f"{path}\n\n")
        _print_report(summary, options)


def _demo(options: argparse.Namespace) -> int:
    from mcp_probe.workloads import demo

    summary = demo.run(seconds=options.seconds)
    _print_report(summary, options)
    return INTERRUPTED if demo.INTERRUPTED in summary.notes else OK


def _load(options: argparse.Namespace) -> int:
    from mcp_probe.workloads.load import command

    return OK if command.load(options) else FINDINGS


def _bench(options: argparse.Namespace) -> int:
    from mcp_probe.workloads.bench import command

    return OK if command.bench(options) else FINDINGS


def _compare(options: argparse.Namespace) -> int:
    from mcp_probe.compare import command

    try:
        found = command.compare(options)
    except BrokenPipeError:  # nobody knows what was not shown
        _give_up_stdout()
        return FINDINGS if options.max_regression else OK
    for sentence in (*found.remarks, *found.unknown, *found.failing):
        _complain(sentence)
    return OK if found.passes else FINDINGS


def _query(options: argparse.Namespace) -> int:
    from mcp_probe.query import command

    for sentence in command.query(options):
        _complain(sentence)
    return OK


def _top(options: argparse.Namespace) -> int:
    _require_posix("Watching a server")
    from mcp_probe.errors import LiveError
    from mcp_probe.top import command

    try:
        problems = command.top(options)
    except LiveError as exc:
        _complain(str(exc))
        return FINDINGS
    for problem in problems:
        _complain(problem)
    return FINDINGS if problems else OK


def _what_if(options: argparse.Namespace) -> int:
    from mcp_probe.predict import command

    command.what_if(options)
    return OK


def _doctor(options: argparse.Namespace) -> int:
    from mcp_probe.launch.seen import blocks, is_blind
    from mcp_probe.report.console import draw

    if options.command:
        _require_posix()
        from mcp_probe.launch.doctor import diagnose_command

        facts = diagnose_command(options.command)
    else:
        from mcp_probe.launch.sight import look

        facts = look()
    color = False if options.no_color else None
    found = blocks(facts, _no_telemetry(), every_hook=options.hooks)
    sys.stdout.write(draw(found, sys.stdout, width=options.width, color=color))
    return FINDINGS if is_blind(facts) else OK


def _no_telemetry() -> str:
    """Why `mcp-probe run --otlp`, which sends from this Python, could not."""
    from importlib.util import find_spec

    for package in ("opentelemetry.sdk", "opentelemetry.exporter.otlp"):
        try:
            if find_spec(package) is not None:
                continue
        except ImportError:
            pass
        return f"{package} is missing in {sys.executable}: install mcp-probe-profiler[otel] there"
    return ""


def _init(options: argparse.Namespace) -> int:
    _require_posix()
    from mcp_probe.init import command

    is_one = options.client is not None or options.file is not None  # then stdout is what goes into its file
    for line in command.init(options):
        print(line, file=sys.stderr if is_one and isinstance(line, command.Remark) else sys.stdout, flush=True)
    return OK


def _completion(options: argparse.Namespace) -> int:
    from mcp_probe.completion import script

    print(script(_parser(), options.shell), end="")
    return OK


def _check_distinct(options: argparse.Namespace) -> None:
    """No file is written twice, or emptied before it is read; and no failing run becomes its own baseline."""
    files = ("output", "json", "html", "record", "junit", "baseline", "trace", "speedscope")
    given = {name: getattr(options, name, None) for name in files}
    given |= {f"FILE {number}": path for number, path in enumerate(getattr(options, "files", ()), 1)}
    paths = {name: Path(path).resolve() for name, path in given.items() if path and path != "-"}
    paths = {name: path for name, path in paths.items() if path != Path(os.devnull)}
    if len(set(paths.values())) < len(paths):
        names = [name if name.startswith("FILE") else f"--{name}" for name in paths]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        raise OptionError(f"{listed} name the same file. Give each a file of its own.")


def _require_posix(what: str = "Profiling a command") -> None:
    if os.name != "posix":
        raise LaunchError(
            f"{what} needs a POSIX system (Linux, macOS); this is {sys.platform}. "
            'Attach in the server instead: mcp_probe.attach(server, report="stderr").'
        )


def _slow_step_ms(given: float | None) -> float:
    text = os.environ.get("MCP_PROBE_SLOW_STEP_MS")
    if given is not None or not text:
        return given or 10.0
    try:
        return milliseconds(text)
    except argparse.ArgumentTypeError as exc:
        raise OptionError(f"MCP_PROBE_SLOW_STEP_MS is {exc}") from None


def _asked(options: argparse.Namespace) -> Options:
    """What these options, or MCP_PROBE_*, say; the command would find a bad one too late."""
    from mcp_probe.options import Options

    for name in ("full", "record_limit"):
        if getattr(options, name, None) is not None and options.record is None:
            raise OptionError(f"--{_spelt(name)} was given without --record. Say where it goes: add --record FILE.")
    names = ("memory", "measures", "full", "record_limit", "resources", "live", "flight", "dump_signal")
    given = {name: getattr(options, name, None) for name in names}  # `attach` has few of them
    given |= {name: _number(name, getattr(options, name, None)) for name in ("flight_seconds", "flight_factor")}
    given["awaits"] = None if options.awaits is None else options.awaits == "on"
    given["otlp"] = getattr(options, "otlp", False)
    found = Options.from_environment(given)
    return found if options.record is not None else replace(found, full=False)


def _tiers(asked: Options) -> dict[str, str]:
    """The variables, without their prefix, that tell the command's Python what to measure."""
    tiers = {"memory": asked.memory, "measures": asked.measures, "awaits": "on" if asked.awaits else "off"}
    tiers |= {name: "1" if getattr(asked, name) else "0" for name in ("full", "resources")}
    if asked.flight is not None:
        from mcp_probe.live.flight_files import folder_of

        asked = replace(asked, flight=folder_of(asked.flight))  # a server may change its working directory
        tiers |= {name: str(getattr(asked, name)) for name in ("flight", "flight_seconds", "flight_factor")}
    return tiers | {name: "1" for name in ("live", "dump_signal") if getattr(asked, name)}


def _spelt(name: str) -> str:
    return name.replace("_", "-")


def _number(name: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise OptionError(f"--{_spelt(name)} is {text!r}; expected a number.") from None


# --- failing in CI --------------------------------------------------------------------------------


class _Gate:
    """``--fail-on`` and its options. Files are read and opened first of all, so that a bad path starts nothing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._rules: tuple[Rule, ...] = options.fail_on
        self._junit: Path | None = options.junit
        self._judgement: Judgement | None = None
        self._unwritten: str | None = None
        for name in ("baseline", "junit", "github"):
            if getattr(options, name) and not self._rules:
                raise OptionError(f"--{name} was given without --fail-on. Say what shall fail: add --fail-on warn.")
        in_actions = os.environ.get("GITHUB_ACTIONS") == "true" if options.github is None else options.github
        self._workspace = os.environ.get("GITHUB_WORKSPACE") or os.getcwd() if in_actions else None
        from mcp_probe.report.baseline import read_baseline

        self._baseline = None if options.baseline is None else read_baseline(options.baseline)
        _open_first(self._junit)

    def judge(self, summaries: Sequence[Summary], problems: Sequence[str] = ()) -> None:
        """Judges anew, and writes the file anew; without --fail-on there is nothing to judge."""
        self._judgement = None
        if not self._rules:
            return
        from mcp_probe.aggregate.gate import judge

        self._judgement = judge(summaries, self._rules, self._baseline or (), problems)
        if self._junit is not None:
            self._write_junit(self._judgement, self._junit)

    def _write_junit(self, judgement: Judgement, path: Path) -> None:
        from mcp_probe.record.private_file import opened
        from mcp_probe.report import junit

        try:
            with opened(path) as stream:
                junit.write(judgement, stream)
        except (OptionError, OSError) as exc:
            self._unwritten = f"{path} could not be written ({exc}); that counts as a failure (--junit)."

    def told(self) -> str:
        """What stderr gets of it."""
        if self._judgement is None:
            return ""
        from mcp_probe.report.gate import told

        sentences = told(self._judgement, is_compared=self._baseline is not None)
        sentences += [self._unwritten] if self._unwritten else []
        text = "".join(f"mcp-probe: {sentence}\n" for sentence in sentences)
        if self._workspace is not None:
            from mcp_probe.report.github import annotated

            text += annotated(self._judgement, self._workspace)
        return text

    def exit_code(self) -> int:
        """1 where the last judgement fails, where there is none that should be, and where it could not be written."""
        if not self._rules:
            return OK
        passes = self._judgement is not None and self._judgement.passes and self._unwritten is None
        return OK if passes else FINDINGS


# --- output ---------------------------------------------------------------------------------------


class _Publisher:
    """Puts an outcome where it was asked for. Files are opened first of all, so that a bad path starts nothing."""

    def __init__(
        self, output: Path | None, json: Path | None, html: Path | None, gate: _Gate, full: Path | None = None
    ) -> None:
        self._full = full
        self._output = output
        self._json = json
        self._gate = gate
        _open_first(output, json, html)
        self._shown = False
        self._page = None if html is None else _page_writer(html)
        self._prepared = threading.Event()

    def prepare(self) -> None:
        """Loads what :meth:`publish` needs, by painting an empty report."""
        try:
            self._prepare()
        finally:
            self._prepared.set()

    def _prepare(self) -> None:
        from mcp_probe.aggregate.fold import Fold
        from mcp_probe.report import jsonfile  # noqa: F401
        from mcp_probe.report.console import render

        render(Fold().summary(), stream=sys.stderr)
        if self._full is not None:
            from mcp_probe.predict import gains  # noqa: F401
        if self._page is not None:
            from mcp_probe.report.page import compose

            compose.render((Fold().summary(), _window()), cwd="/")

    def publish(self, outcome: Outcome) -> None:
        """Files are written anew each time, stderr once. Never raises: the command's exit code must get through."""
        sentences = list(outcome.sentences)
        text = ""
        try:
            outcome = self._predicted(outcome)
            text = self._report(outcome)
            if self._json is not None:
                self._write_json(outcome, self._json)
            self._gate.judge([report.summary for report in outcome.reports], outcome.failures)
        except ProbeError as exc:
            sentences.append(str(exc))
        except Exception as exc:  # noqa: BLE001 - see above
            sentences.append(f"The report could not be made ({type(exc).__name__}: {exc}); please report this.")
        if not self._shown:
            self._shown = True
            _deliver(text + "".join(f"mcp-probe: {sentence}\n" for sentence in sentences))
        if self._page is not None:
            self._draw(outcome, self._page)

    def _predicted(self, outcome: Outcome) -> Outcome:
        """With the gains of its findings, where one process served and its recording is short enough for the exit."""
        if self._full is None or outcome.exit_code is None or len(outcome.reports) != 1:
            return outcome
        try:
            if self._full.stat().st_size > _PREDICTED_BYTES:
                return outcome
        except OSError:  # somebody has moved it
            return outcome
        from mcp_probe.predict.gains import with_gains
        from mcp_probe.record.parts import read_parts

        report = outcome.reports[0]
        summary = with_gains(report.summary, read_parts(self._full))
        return replace(outcome, reports=(replace(report, summary=summary),))

    def _report(self, outcome: Outcome) -> str:
        """What stderr gets: the reports, one below the other, or nothing where they went to a file."""
        from mcp_probe.launch.parent import numbered
        from mcp_probe.record.private_file import opened
        from mcp_probe.report.console import render

        if self._output is None:
            return "\n".join(render(report.summary, width=None, stream=sys.stderr) for report in outcome.reports)
        for position, summary in enumerate(_with_sentences(outcome), 1):
            with opened(numbered(self._output, position)) as stream:
                stream.write(render(summary, color=False, stream=stream))
        return ""

    def _write_json(self, outcome: Outcome, path: Path) -> None:
        from mcp_probe.launch.parent import numbered
        from mcp_probe.record.private_file import opened

        for position, summary in enumerate(_with_sentences(outcome), 1):
            with opened(numbered(path, position)) as stream:
                _write_json(summary, stream)

    def _draw(self, outcome: Outcome, page: PageWriter) -> None:
        """One page of every process, drawn by a process of its own. A lock of an import must not be held meanwhile."""
        self._prepared.wait(_PREPARE_PATIENCE_S)
        windows = [report.window or _window() for report in outcome.reports] or [_window()]
        try:
            told = page.start(list(zip(_with_sentences(outcome), windows, strict=True)))
        except Exception as exc:  # noqa: BLE001 - the command's exit code must get through
            told = f"The page could not be made ({type(exc).__name__}: {exc}); please report this."
        if told is not None and outcome.exit_code is not None:
            _complain(told)


def _page_writer(path: Path) -> PageWriter:
    from mcp_probe.report.page.written import PageWriter

    return PageWriter(path)


def _with_sentences(outcome: Outcome) -> list[Summary]:
    """What files get: each must be understood without stderr, and have its keys where nothing was measured."""
    from mcp_probe.aggregate.fold import Fold

    summaries = [report.summary for report in outcome.reports]
    if not summaries:
        from mcp_probe.aggregate.findings import with_ending

        summaries = [Fold().summary() if outcome.ending is None else with_ending(Fold().summary(), outcome.ending)]
    return [replace(summary, notes=(*summary.notes, *outcome.sentences)) for summary in summaries]


def _print_report(summary: Summary, options: argparse.Namespace) -> None:
    from mcp_probe.report.console import render

    color = False if options.no_color else None
    sys.stdout.write(render(summary, width=options.width, color=color, stream=sys.stdout))
    sys.stdout.flush()


def _window() -> Window:
    from mcp_probe.report.page.window import Window

    return Window()


def _write_pages(processes: Sequence[tuple[Summary, Window | None]], path: Path) -> None:
    from mcp_probe.report.page.written import write_page

    write_page([(summary, window or _window()) for summary, window in processes], path)


def _write_json(summary: Summary, stream: TextIO) -> None:
    from mcp_probe.report import jsonfile

    jsonfile.write(summary, stream)
    stream.flush()


def _give_up_stdout() -> None:
    """Whoever read us (head, less) has seen enough; without this the exit would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str) -> None:
    _deliver(f"mcp-probe: {sentence}\n")


def _deliver(text: str) -> None:
    """Writes to stderr, which may be closed or a pipe nobody reads: what is not taken at once is given up."""
    from mcp_probe.report.deliver import deliver

    with suppress(AttributeError, OSError, ValueError):
        deliver(text, sys.stderr.fileno(), _STDERR_PATIENCE_S)


def _die_by(number: int) -> NoReturn:
    """Ends this process by the signal that ended the command, so that who waits for us sees the same."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core worth having is the command's
    os.kill(os.getpid(), number)
    sys.exit(128 + number)
