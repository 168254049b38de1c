from __future__ import annotations

import io

from mcp_probe.workloads.bench.progress import Progress
from mcp_probe.workloads.bench.registry import WORKLOADS
from mcp_probe.workloads.bench.shapes import Outcome, Result
from mcp_probe.workloads.status_line import StatusLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_is_one_line_that_is_wiped_at_the_end() -> None:
    with StatusLine(screen := Terminal(), "demo") as line:
        line.show("first")
        line.show("second")
    assert "\n" not in screen.getvalue()
    assert "mcp-probe demo: second" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_it_is_silent_off_a_terminal() -> None:
    with StatusLine(pipe := io.StringIO(), "demo") as line:
        line.show("first")
    assert pipe.getvalue() == ""


def test_it_never_wraps() -> None:
    with StatusLine(screen := Terminal(), "demo") as line:
        line.show("x" * 500)
    assert all(len(text) < 100 for text in screen.getvalue().split("\r\x1b[K"))


def results() -> tuple[Result, Result]:
    first, second = WORKLOADS[:2]
    return (
        Result(first.name, first.documents, first.about, Outcome((), ()), 1.5),
        Result(second.name, second.documents, second.about, Outcome((), ()), 20.0, error="interrupted"),
    )


def test_a_benchmark_leaves_one_line_a_workload_on_a_terminal_and_in_a_log() -> None:
    first, second = results()
    for stream in (Terminal(), io.StringIO()):
        with Progress(stream, [first.name, second.name]) as progress:
            progress.show(WORKLOADS[0], "10 calls at once")
            progress.done(first)
            progress.done(second)
        kept = [line.rsplit("\x1b[K", 1)[-1] for line in stream.getvalue().split("\n")]
        assert kept[0].startswith(f"[1/2] {first.name}") and kept[0].endswith("1.5 s")
        assert kept[1].startswith(f"[2/2] {second.name}") and kept[1].endswith("20.0 s  interrupted")
        assert kept[2] == ""
        assert ("0/2 done, " in stream.getvalue()) is stream.isatty()
