"""Runs workloads one after another, keeps what is done, and never lets one of them take the others down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio

from mcp_probe.errors import ProbeError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.registry import Find, load
from mcp_probe.workloads.bench.shapes import INTERRUPTED, Outcome, Result, Workload

Show = Callable[[Workload, str], None]


def run_all(
    workloads: Iterable[Workload],
    *,
    quick: bool,
    show: Show | None = None,
    find: Find = load,
    pythons: Sequence[Path] = (),
) -> Iterator[Result]:
    """Each workload's result as it ends; ``find`` gives what one runs, ``pythons`` are interpreters to compare.

    Each runs in an event loop of its own. On KeyboardInterrupt what the interrupted one had found comes last.
    """
    for workload in workloads:
        bench = Bench(
            quick=quick,
            show=None if show is None else partial(show, workload),
            patience_s=workload.patience_quick_s if quick else workload.patience_full_s,
            pythons=pythons,
        )
        result = _run(workload, bench, find)
        yield result
        if result.error == INTERRUPTED:
            return


def _run(workload: Workload, bench: Bench, find: Find) -> Result:
    limit = workload.limit_quick_s if bench.quick else workload.limit_full_s
    began = time.monotonic()
    error: str | None = None
    outcome = Outcome()

    async def bounded() -> Outcome:
        with anyio.fail_after(limit):
            return await find(workload)(bench)

    try:
        outcome = anyio.run(bounded)
    except KeyboardInterrupt:
        error = INTERRUPTED
    except TimeoutError:
        error = f"took longer than {limit:.0f} s and was stopped"
    except ImportError as exc:
        error = f'needs a package that is not installed ({exc}); install it: pip install "mcp-probe-profiler[bench]"'
    except Exception as exc:  # noqa: BLE001 - one workload must not take the others' results with it
        error = _sentence(exc)
    if error is not None:
        outcome = bench.outcome(complete=False)
    seconds = round(time.monotonic() - began, 3)
    return Result(workload.name, workload.documents, workload.about, outcome, seconds, error)


def _sentence(exc: BaseException) -> str:
    inner: tuple[BaseException, ...] = getattr(exc, "exceptions", ())
    if inner:
        return _sentence(inner[0])
    return str(exc).removesuffix(".") if isinstance(exc, ProbeError) else f"{type(exc).__name__}: {exc}"
