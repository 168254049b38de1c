"""What ``mcp-probe bench`` does; the command line only chooses the exit code."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import sys
from dataclasses import replace

from mcp_probe.errors import MissingExtraError, OptionError
from mcp_probe.record import private_file
from mcp_probe.workloads.bench import console, registry
from mcp_probe.workloads.bench.machine import describe_machine, version
from mcp_probe.workloads.bench.progress import Progress
from mcp_probe.workloads.bench.registry import PYTHONS, Find
from mcp_probe.workloads.bench.results import write_results
from mcp_probe.workloads.bench.shapes import INTERRUPTED, Results, Workload
from mcp_probe.workloads.bench.signals import ended_as_by_ctrl_c


def bench(options: argparse.Namespace) -> bool:
    """Runs what was asked for and shows it: whether everything ran to its end.

    Raises:
        OptionError: an unknown workload or document, nothing to do, a file that cannot be written.
        MissingExtraError: a chart was asked for, or the mcp package is needed, and it is not there.
        KeyboardInterrupt: Ctrl-C; what was done has been shown and written by then.
    """
    if options.list:
        _say(console.listing(registry.WORKLOADS, registry.GROUPS, look=_look(options)))
        return True
    _require_sdk()
    from mcp_probe.workloads.bench.runner import run_all

    workloads, find = _chosen(options)
    _check_files(options)
    results = Results(describe_machine(), "quick" if options.quick else "full", ())
    interrupted = False
    if options.json is not None:
        write_results(results, options.json)
    with ended_as_by_ctrl_c(), Progress(sys.stderr, [workload.name for workload in workloads]) as progress:
        try:
            for result in run_all(
                workloads, quick=options.quick, show=progress.show, find=find, pythons=options.python
            ):
                results = replace(results, results=(*results.results, result))
                if options.json is not None:
                    write_results(results, options.json)
                progress.done(result)
                interrupted = result.error == INTERRUPTED
        except KeyboardInterrupt:
            interrupted = True
        if options.html is not None:  # before anything is printed: the terminal may be gone
            _write_html(results, options)
    _say(console.page(results, details=options.details, look=_look(options)))
    _charts(results, options)
    if interrupted:
        raise KeyboardInterrupt
    return all(result.error is None for result in results.results)


def _chosen(options: argparse.Namespace) -> tuple[tuple[Workload, ...], Find]:
    """In the registry's order, each once; or the comparisons on a server of the user's own."""
    if options.server or options.url:
        from mcp_probe.workloads.bench.own.command import own_workload

        _check_pythons(options, set())
        return own_workload(options)
    names = {workload.name for workload in registry.named(tuple(options.names))}
    for document in options.document:
        names |= {workload.name for workload in registry.of_document(document)}
    if options.all:
        names = {workload.name for workload in registry.WORKLOADS}
    if not names:
        raise OptionError(
            "Name a workload (`mcp-probe bench --list` has them all), a --document, --all, or a --server of your own."
        )
    _check_pythons(options, names)
    return tuple(workload for workload in registry.WORKLOADS if workload.name in names), registry.load


def _check_pythons(options: argparse.Namespace, names: set[str]) -> None:
    if options.python and PYTHONS not in names:
        raise OptionError(f"--python is for the workload `{PYTHONS}`, which is not among those to run: name it too.")


def _require_sdk() -> None:
    """Raises a sentence that says what to install unless mcp 2.0 or newer can be imported."""
    if importlib.util.find_spec("mcp") is None or importlib.util.find_spec("mcp.server.mcpserver") is None:
        found = version("mcp")
        raise MissingExtraError(
            "The workloads serve and call tools of their own with the mcp package, 2.0 or newer; "
            f"{sys.executable} has {f'mcp {found}' if found else 'no mcp package'}. "
            'Install it there: pip install "mcp-probe-profiler[bench]".'
        )


def _check_files(options: argparse.Namespace) -> None:
    """Before minutes are spent: files can be written, and what draws charts is there."""
    for path in (options.json, options.html):
        if path is not None:
            private_file.check(path)
    if options.plots is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError as exc:
            raise MissingExtraError(
                'Charts are drawn with matplotlib, which is not installed: pip install "mcp-probe-profiler[bench]".'
            ) from exc


def _charts(results: Results, options: argparse.Namespace) -> None:
    if options.plots is not None:
        from mcp_probe.workloads.bench.plots import write_plots

        written = write_plots(results, options.plots)
        _say(f"{len(written)} charts in {options.plots}\n")
    if options.html is not None:
        _say(f"Report with charts: {options.html}\n")


def _write_html(results: Results, options: argparse.Namespace) -> None:
    if options.server or options.url:
        from mcp_probe.workloads.bench.own.page import write_page

        write_page(results, options.html)
    else:
        from mcp_probe.workloads.bench.html import write_html

        write_html(results, options.html)


def _look(options: argparse.Namespace) -> console.Look:
    return console.Look(options.width, False if options.no_color else None)


def _say(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as exc:
        if exc.errno != errno.EIO:  # as of a terminal that has been closed; a closed pipe is the command line's to say
            raise
