"""Whatever one workload does, what is done is kept, and the others run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import anyio
import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench import context
from mcp_probe.workloads.bench.context import Bench, Ms, Patience
from mcp_probe.workloads.bench.registry import (
    GROUPS,
    QUESTIONS,
    TODAY,
    WORKLOADS,
    RunWorkload,
    load,
    named,
    of_document,
)
from mcp_probe.workloads.bench.runner import run_all
from mcp_probe.workloads.bench.shapes import INTERRUPTED, Outcome, Workload


def workload(name: str, limit_s: float = 60.0) -> Workload:
    return Workload(name, ("001",), "about it", "nowhere:run", limit_s, limit_s)


def finder(**runs: Callable[[Bench], object]) -> Callable[[Workload], RunWorkload]:
    """Finds ``runs`` by name; each may add rows before it ends as it likes."""

    def find(wanted: Workload) -> RunWorkload:
        async def run(bench: Bench) -> Outcome:
            bench.row("001 §4", "before", "ms", 1.0)
            ended = runs[wanted.name](bench)
            if hasattr(ended, "__await__"):
                await ended
            bench.row("001 §4", "after", "ms", 2.0)
            return bench.outcome()

        return run

    return find


def fails(error: BaseException) -> Callable[[Bench], object]:
    def run(bench: Bench) -> object:
        raise error

    return run


def test_results_come_in_order_and_whole() -> None:
    found = list(
        run_all([workload("a"), workload("b")], quick=True, find=finder(a=lambda bench: None, b=lambda bench: None))
    )
    assert [(each.name, each.error, each.outcome.complete, len(each.outcome.rows)) for each in found] == [
        ("a", None, True, 2),
        ("b", None, True, 2),
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such thing"), "ValueError: no such thing"),
        (ImportError("No module named 'httpx'"), "needs a package that is not installed (No module named 'httpx')"),
        (OSError(24, "Too many open files"), "Too many open files"),
    ],
)
def test_a_failure_keeps_what_was_found_and_the_next_one_runs(error: Exception, said: str) -> None:
    find = finder(a=fails(error), b=lambda bench: None)
    first, second = run_all([workload("a"), workload("b")], quick=True, find=find)
    assert said in (first.error or "")
    assert [row.label for row in first.outcome.rows] == ["before"]
    assert not first.outcome.complete
    assert second.error is None


def test_a_failure_inside_task_groups_is_told_as_itself() -> None:
    async def grouped() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)
            raise ValueError("deep inside")

    [result] = run_all([workload("a")], quick=True, find=finder(a=lambda bench: grouped()))
    assert result.error == "ValueError: deep inside"


def test_what_hangs_is_stopped_at_its_limit() -> None:
    find = finder(a=lambda bench: anyio.sleep_forever())
    [result] = run_all([workload("a", limit_s=0.2)], quick=True, find=find)
    assert "took longer than 0 s and was stopped" in (result.error or "")
    assert [row.label for row in result.outcome.rows] == ["before"]


def test_ctrl_c_keeps_what_was_found_and_ends_the_run() -> None:
    find = finder(a=lambda bench: None, b=fails(KeyboardInterrupt()), c=lambda bench: None)
    found = list(run_all([workload("a"), workload("b"), workload("c")], quick=True, find=find))
    assert [(each.name, each.error) for each in found] == [("a", None), ("b", INTERRUPTED)]
    assert [row.label for row in found[1].outcome.rows] == ["before"]


# --- the registry ---------------------------------------------------------------------------------


def test_there_are_eighteen_workloads_of_five_documents_and_those_of_none() -> None:
    names = [each.name for each in WORKLOADS]
    assert len(names) == len(set(names)) == 18 + len(QUESTIONS)
    assert of_document(TODAY) == QUESTIONS
    assert {document for each in WORKLOADS for document in each.documents} == set(GROUPS)


@pytest.mark.parametrize("each", WORKLOADS, ids=lambda each: each.name)
def test_every_workload_can_be_found(each: Workload) -> None:
    assert callable(load(each))


def test_names_and_documents_that_do_not_exist_are_told() -> None:
    with pytest.raises(ValueError, match=r"no workload wave\. There are: .*waves"):
        named(("wave",))
    with pytest.raises(ValueError, match=r"no document 005\. There are: 000, 001"):
        of_document("005")


# --- timing ---------------------------------------------------------------------------------------


@pytest.fixture
def load_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[float]], None]:
    """Replaces what the machine says of others' load, one figure per measurement."""

    def use(cores: Iterator[float]) -> None:
        class Load:
            def __init__(self, ours: object) -> None: ...

            def cores(self) -> float:
                return next(cores)

        monkeypatch.setattr(context, "ForeignLoad", Load)

    return use


def test_a_contended_measurement_is_run_again_while_there_is_patience(
    load_of: Callable[[Iterator[float]], None],
) -> None:
    load_of(iter([1.0, 1.0, 0.1]))
    turns: list[int] = []
    found = anyio.run(Bench(quick=True, patience_s=60).timed, lambda: turns.append(1), 4)
    assert (found.reruns, found.contended, found.foreign_cores, len(turns)) == (2, False, 0.1, 12)


def test_without_patience_it_is_marked(load_of: Callable[[Iterator[float]], None]) -> None:
    load_of(iter([1.0]))
    found = anyio.run(Bench(quick=True, patience_s=0).timed, lambda: None, 4)
    assert (found.reruns, found.contended, found.n) == (0, True, 3)


def test_patience_is_one_for_the_whole_workload() -> None:
    patience = Patience(1.0)
    patience.spend(0.6)
    assert patience.left
    patience.spend(0.6)
    assert not patience.left


def test_all_take_turns_and_the_twin_gives_the_floor() -> None:
    order: list[str] = []

    def turn(name: str, milliseconds: float) -> Callable[[], Ms]:
        def run() -> Ms:
            order.append(name)
            return Ms(milliseconds)

        return run

    async def main() -> context.Interleaved:
        return await Bench(quick=True).interleaved({"a": turn("a", 10), "b": turn("b", 30)}, 6, twin="a")

    found = anyio.run(main)
    assert (found.ratio("b", "a"), found.floor, set(found.stats)) == (3.0, 1.0, {"a", "b"})
    rounds = [order[at : at + 3] for at in range(0, len(order), 3)]
    assert all(sorted(each) == ["a", "a", "b"] for each in rounds)
    assert {each.index("b") for each in rounds} == {0, 1, 2}


def test_only_a_time_of_its_own_replaces_the_clock() -> None:
    async def main() -> float:
        return (await Bench(quick=True).timed(lambda: 123456.0, 3)).max

    assert anyio.run(main) < 123456


def test_coroutines_are_awaited_inside_the_clock() -> None:
    async def nap() -> None:
        await anyio.sleep(0.02)

    async def main() -> float:
        return (await Bench(quick=True).timed(nap, 3)).min

    assert anyio.run(main) >= 19


def test_warm_up_is_run_and_not_kept() -> None:
    turns: list[int] = []
    found = anyio.run(lambda: Bench(quick=True).timed(lambda: turns.append(1), 5, warm_up=3, first_apart=False))
    assert (found.n, len(turns)) == (5, 8)


def test_sizes_and_findings() -> None:
    bench = Bench(quick=False)
    bench.lacks("httpx", "HTTP/2")
    bench.note("A note.")
    assert (bench.size(1, 2), Bench(quick=True).size(1, 2)) == (2, 1)
    assert bench.outcome().missing == ("httpx is not installed: HTTP/2",)
    assert bench.outcome().notes == ("A note.",)


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(time, "CLOCK_PROCESS_CPUTIME_ID"), reason="no CPU clock")
def test_own_work_and_that_of_children_is_not_foreign() -> None:
    import subprocess
    import sys

    from mcp_probe.workloads.bench.machine import busy_ns, tree_ns

    if busy_ns() is None:
        pytest.skip("nobody counts what the cores do here")
    before = tree_ns()
    burn = "import time; began = time.process_time()\nwhile time.process_time() - began < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    child_ns = tree_ns() - before
    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass
    assert child_ns >= 450_000_000
    assert tree_ns() - before - child_ns >= 250_000_000


def test_a_server_that_somebody_else_started_here_is_found_by_its_url() -> None:
    import os
    import socket

    from mcp_probe.workloads.bench.machine import busy_ns, serving

    if busy_ns() is None:
        pytest.skip("the kernel tells nothing of other processes here")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert serving(f"http://localhost:{port}/mcp") == {os.getpid()}
        assert serving(f"http://192.0.2.1:{port}/mcp") == frozenset()
    assert os.getpid() not in serving(f"http://127.0.0.1:{port}/mcp")
    assert serving("") == frozenset()


def test_a_process_s_cpu_time_and_memory_are_read_from_outside_as_it_counts_them_itself() -> None:
    import subprocess
    import sys

    from mcp_probe.workloads.bench.machine import process_ns
    from mcp_probe.workloads.servers.resident import resident_bytes

    if process_ns(os.getpid()) is None:
        pytest.skip("the kernel offers no clock of another process here")
    program = (
        "import sys, time\nheld = b'x' * 50_000_000\nwhile time.process_time() < 0.3: pass\n"
        "print(time.process_time_ns(), flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        own_ns = int(other.stdout.readline())
        found_ns = process_ns(other.pid)
        assert found_ns is not None
        assert own_ns <= found_ns < own_ns + 300_000_000
        assert (resident_bytes(other.pid) or 0) > 50_000_000
        other.communicate("")
        pid = other.pid
    assert process_ns(pid) is None
    assert resident_bytes(pid) is None


def sentence_that_came() -> str:
    return "because of the readings"


def sentence_that_never_came() -> str:
    raise LaunchError("There are no readings: the server still runs.")


def test_a_row_is_handed_in_before_its_readings_are_there() -> None:
    bench = Bench(quick=True)
    bench.row("001 §4", "told", "ms", 1.0, why=sentence_that_came)
    bench.row("001 §4", "plain", "ms", 2.0, why="said at once")
    assert [row.why for row in bench.outcome().rows] == ["because of the readings", "said at once"]


def test_rows_of_one_arm_share_its_reason_and_others_do_not() -> None:
    bench = Bench(quick=True)
    bench.row("002 §1 ping", "mean", "ms", 1.0, arm="ping")
    bench.row("002 §1 ping", "median", "ms", 1.0, arm="ping", why=lambda: "it was written late")
    bench.row("002 §2 tool call", "median", "ms", 1.0, arm="tool call", why="it computed")
    bench.row("002 §2 tool call", "P99", "ms", 1.0, arm="tool call", why="of its own")
    bench.row("002 conditions", "raw", "ms", 1.0)
    whys = [row.why for row in bench.outcome().rows]
    assert whys == ["it was written late", "it was written late", "it computed", "of its own", ""]


def test_an_interrupted_run_keeps_rows_whose_readings_never_came() -> None:
    def cut(bench: Bench) -> object:
        bench.row("001 §4", "done", "ms", 1.0, why=sentence_that_never_came)
        raise KeyboardInterrupt

    [result] = run_all([workload("a")], quick=True, find=finder(a=cut))
    assert result.error == INTERRUPTED
    assert [(row.label, row.why) for row in result.outcome.rows] == [("before", ""), ("done", "")]


def test_a_whole_run_without_its_readings_is_an_error() -> None:
    def run(bench: Bench) -> None:
        bench.row("001 §4", "done", "ms", 1.0, why=sentence_that_never_came)

    [result] = run_all([workload("a")], quick=True, find=finder(a=run))
    assert result.error == "There are no readings: the server still runs"
    assert [row.label for row in result.outcome.rows] == ["before", "done", "after"]
