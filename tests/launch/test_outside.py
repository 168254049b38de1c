"""The look from outside: what is made of stacks and tasks, and how it is said; real programs beside shapes by hand."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_probe.errors import AttachError
from mcp_probe.launch.outside import kernel, look, py_spy
from mcp_probe.launch.outside.shapes import Line, Look, Task, Thread
from mcp_probe.launch.outside.target import Target, find
from mcp_probe.launch.outside.told import as_json, as_text
from mcp_probe.launch.outside.verdict import verdicts
from mcp_probe.launch.outside.waits import is_servers_own, kind_among, loop_of, place_among
from tests.launch.attach_cells import python_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
LIB = "/opt/lib/python3.14"
SITE = f"{LIB}/site-packages"
OWN = Line("/srv/app.py", 12, "lookup")
LOCK = (Line(f"{LIB}/asyncio/locks.py", 110, "Lock.acquire"), Line(f"{LIB}/asyncio/locks.py", 14, "__aenter__"), OWN)
POLL = (
    Line(f"{LIB}/selectors.py", 452, "EpollSelector.select"),
    Line(f"{LIB}/asyncio/base_events.py", 2024, "BaseEventLoop._run_once"),
)
HANGS = """\
import asyncio, re, select, sys, threading, time

async def takes(first, second):
    async with first:
        await asyncio.sleep(0.05)
        print("up", flush=True)
        async with second:  # hangs
            pass

async def both():
    one, other = asyncio.Lock(), asyncio.Lock()
    await asyncio.gather(takes(one, other), takes(other, one))

async def blocks():
    print("up", flush=True)
    time.sleep(600)  # blocks

async def computes():
    print("up", flush=True)
    while True:
        re.match("(a+)+b", "a" * 24)  # computes

def waits():
    threading.Event().wait()  # a worker waits

threading.Thread(target=waits, daemon=True).start()
asyncio.run({"deadlock": both, "blocks": blocks, "computes": computes}[sys.argv[1]]())
"""


def thread(
    stack: Sequence[Line], *, cpu: float | None = 0.0, later: Sequence[Line] | None = None, **more: object
) -> Thread:
    loop = more.get("loop", loop_of(stack))
    doing = str(more.get("kernel", "sleeps"))
    return Thread(1, "main", tuple(stack), tuple(stack if later is None else later), cpu, doing, loop)  # type: ignore[arg-type]


def seen(threads: Sequence[Thread], tasks: Sequence[Task] | None = ()) -> Look:
    kept = None if tasks is None else tuple(tasks)
    return Look(1, ("python", "app.py"), "3.14", "interpreter", tuple(threads), kept, 0.3, ())


def task(name: str, chain: Sequence[Line]) -> Task:
    return Task(name, 1, tuple(chain), (), kind_among(chain), place_among(chain))


def said(found: Look) -> str:
    return " ".join(sentence for verdict in verdicts(found) for sentence in verdict.sentences)


# ---- what lines mean ----


def test_own_code_is_told_from_python_the_sdk_and_what_that_runs_on() -> None:
    own = [OWN, Line(f"{SITE}/my_server/tools.py", 3, "f"), Line(f"{SITE}/requests/api.py", 3, "get")]
    others = [
        Line(f"{LIB}/asyncio/locks.py", 1, "f"),
        Line(f"{SITE}/mcp/server/stdio.py", 1, "f"),
        Line("<frozen os>", 1, "f"),
        Line(f"{SITE}/anyio/to_thread.py", 1, "f"),
        Line(f"{SITE}/uvicorn/server.py", 1, "f"),
    ]
    assert [is_servers_own(line) for line in (*own, *others)] == [True] * 3 + [False] * 5


@pytest.mark.parametrize(
    ("file", "function", "kind"),
    [
        (f"{LIB}/asyncio/locks.py", "Lock.acquire", "lock"),
        (f"{LIB}/asyncio/locks.py", "Event.wait", "event"),
        (f"{LIB}/asyncio/locks.py", "Semaphore.acquire", "semaphore"),
        (f"{LIB}/asyncio/queues.py", "Queue.get", "queue"),
        (f"{LIB}/asyncio/tasks.py", "sleep", "sleep"),
        (f"{LIB}/asyncio/taskgroups.py", "TaskGroup._aexit", "task"),
        (f"{SITE}/anyio/_backends/_asyncio.py", "Lock.acquire", "lock"),
        (f"{SITE}/anyio/to_thread.py", "run_sync", "thread"),
        (f"{SITE}/httpx/_client.py", "AsyncClient.send", "http"),
        ("/srv/app.py", "acquire", None),
    ],
)
def test_what_a_task_waits_for_is_told_by_its_innermost_lines(file: str, function: str, kind: str | None) -> None:
    assert kind_among([Line(file, 1, function), OWN]) == kind


def test_a_line_of_the_servers_own_ends_the_search() -> None:
    assert kind_among([OWN, *LOCK]) is None


# ---- the verdict ----


def test_an_idle_loop_with_tasks_that_wait_for_locks_says_so() -> None:
    found = seen([thread(POLL)], [task("a", LOCK), task("b", LOCK)])
    assert [each.state for each in verdicts(found)] == ["waits"]
    assert "2 tasks wait for a lock" in said(found) and "wait for each other" in said(found)


def test_a_lock_is_not_called_a_deadlock_beside_a_task_that_may_hold_it() -> None:
    others = task("c", [Line(f"{LIB}/asyncio/tasks.py", 9, "sleep"), OWN])
    assert "wait for each other" not in said(seen([thread(POLL)], [task("a", LOCK), task("b", LOCK), others]))


def test_a_loop_that_polls_and_uses_the_cpu_goes_on() -> None:
    assert [each.state for each in verdicts(seen([thread(POLL, cpu=0.3)]))] == ["runs"]


@pytest.mark.parametrize(("cpu", "state"), [(0.01, "held"), (0.97, "computes")])
def test_a_line_that_stays_holds_the_loop(cpu: float, state: str) -> None:
    found = seen([thread([OWN], cpu=cpu, loop="asyncio")], [task("a", [OWN])])
    assert [each.state for each in verdicts(found)] == [state]
    assert "is held by lookup, …/srv/app.py:12 (task a)" in said(found) or "lookup, /srv/app.py:12 (task a)" in said(
        found
    )


def test_a_line_that_moves_on_holds_nothing() -> None:
    found = seen([thread([OWN], cpu=0.9, later=[Line("/srv/app.py", 13, "lookup")], loop="asyncio")])
    assert [each.state for each in verdicts(found)] == ["runs"]


def test_uvloop_that_polls_in_c_is_idle_by_what_the_kernel_says() -> None:
    stack = [Line(f"{SITE}/uvloop/__init__.py", 96, "run"), OWN]
    assert [each.state for each in verdicts(seen([thread(stack, kernel="waits for events (epoll_wait)")]))] == ["waits"]


def test_without_lines_the_kernel_has_the_word() -> None:
    found = seen([thread([], loop=None, kernel="waits for events (epoll_wait)")], None)
    assert [each.state for each in verdicts(found)] == ["waits"]
    assert "The main thread (thread 1) waits for events" in said(found)


# ---- how it is said ----


def test_alike_tasks_are_one_row_and_libraries_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # a log of CI is plain ASCII
    library = task("reader", [Line(f"{SITE}/mcp/server/stdio.py", 187, "stdin_reader")])
    found = seen([thread(POLL)], [*(task(f"t{number}", LOCK) for number in range(50)), library])
    text = as_text(found, io.TextIOWrapper(io.BytesIO(), "utf-8"), width=120, color=False)
    assert "lookup ×50 · wait for a lock" in text
    assert "t0, t1, t2 and 47 more" in text
    assert "1 of the SDK and other libraries" in text
    assert len(text.splitlines()) < 40


def test_names_of_another_process_cannot_write_to_the_terminal() -> None:
    assert look._printable(
        "evil\x1b[2Jname\u202e\n"
    ) == "evil\ufffd[2Jname\ufffd\ufffd" or "\x1b" not in look._printable("\x1b")
    assert look._lines([["a\x1b.py", 3, "f\n"]]) == (Line("a\ufffd.py", 3, "f\ufffd"),)


def test_json_has_every_task_and_its_format() -> None:
    found = json.loads(json.dumps(as_json(seen([thread(POLL)], [task("a", LOCK)]))))
    assert found["format"] == 1
    assert [each["name"] for each in found["tasks"]] == ["a"]
    assert found["verdicts"][0]["state"] == "waits"


# ---- real programs ----


@contextmanager
def hanging(python: str, how: str, folder: Path) -> Iterator[Target]:
    script = folder / "hangs.py"
    script.write_text(HANGS)
    with subprocess.Popen([python, str(script), how], stdout=subprocess.PIPE) as process:
        try:
            for _ in range(2 if how == "deadlock" else 1):
                assert process.stdout is not None and process.stdout.readline() == b"up\n"
            yield find(process.pid)
        finally:
            process.kill()


def line_of(marker: str) -> int:
    return next(number for number, line in enumerate(HANGS.splitlines(), 1) if line.endswith(f"# {marker}"))


def looked_until(target: Target, state: str) -> Look:
    """The program says that it is up just before it hangs."""
    for _ in range(50):
        found = look.look(target, between_s=0.2)
        if verdicts(found)[0].state == state:
            return found
    raise AssertionError(verdicts(found))


@linux
@pytest.mark.parametrize("version", ["3.14", "3.15"])
def test_a_real_deadlock_is_read_by_the_servers_interpreter(version: str, tmp_path: Path) -> None:
    with hanging(str(python_of(version)), "deadlock", tmp_path) as target:
        found = looked_until(target, "waits")
    locked = [each for each in found.tasks or () if each.kind == "lock"]
    assert found.means == "interpreter"
    assert [each.place and each.place.line for each in locked] == [line_of("hangs")] * 2
    assert all(each.awaited_by for each in locked)
    workers = [place_among(each.stack) for each in found.threads if each.loop is None]
    assert [place and place.line for place in workers] == [line_of("a worker waits")]


@linux
@pytest.mark.parametrize("version", ["3.14", "3.15", "own"])
@pytest.mark.parametrize(("how", "state"), [("blocks", "held"), ("computes", "computes")])
def test_the_line_that_holds_a_real_loop_is_named(version: str, how: str, state: str, tmp_path: Path) -> None:
    if version == "own" and py_spy.program() is None:
        pytest.skip("no py-spy here")
    python = sys.executable if version == "own" else str(python_of(version))
    with hanging(python, how, tmp_path) as target:
        for _ in range(50):  # a CPU that others use makes the one of a computing line less
            found = look.look(target)
            at = place_among(found.threads[0].stack)
            if at is not None and at.line == line_of(how) and verdicts(found)[0].state == state:
                break
        else:
            raise AssertionError(found)
    assert f"hangs.py:{line_of(how)}" in said(found)


@linux
def test_an_older_python_is_read_by_py_spy_which_says_what_it_cannot_see(tmp_path: Path) -> None:
    if py_spy.program() is None or sys.version_info >= (3, 14):
        pytest.skip("needs py-spy, and a Python that cannot show its tasks")
    with hanging(sys.executable, "deadlock", tmp_path) as target:
        found = looked_until(target, "waits")
    assert (found.means, found.tasks) == ("py-spy", None)
    assert any("cannot be seen from outside" in sentence for sentence in found.unseen)


@linux
def test_without_any_tool_the_kernel_is_asked_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "program", lambda: None)
    monkeypatch.setattr(look, "OLDEST", (9, 0))
    with hanging(sys.executable, "deadlock", tmp_path) as target:
        found = looked_until(target, "waits")
    assert (found.means, found.tasks) == ("kernel", None)
    assert found.unseen == ("Lines: py-spy is not installed here; `pip install py-spy` lets this command show lines.",)
    text = as_text(found, io.TextIOWrapper(io.BytesIO(), "utf-8"), width=100, color=False)
    assert "waits for events (epoll_wait)" in text and "waits for a lock (futex)" in text


@linux
def test_a_process_that_ends_meanwhile_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "program", lambda: None)
    monkeypatch.setattr(look, "OLDEST", (9, 0))
    with hanging(sys.executable, "blocks", tmp_path) as target:
        pass
    with pytest.raises(AttachError, match="ended while it was looked at"):
        look.look(target, between_s=0.0)


def test_a_py_spy_that_prints_something_else_is_no_traceback() -> None:
    with pytest.raises(py_spy.Failed, match="prints what is not known to us"):
        py_spy.parsed('[{"pid": 1}]')


def test_an_interpreter_that_answers_nonsense_is_no_traceback(tmp_path: Path) -> None:
    nonsense = Target(2**22 + 1, 0, ("python",), "/bin/true", (3, 14), None, False, "")
    with pytest.raises(look._Unseen, match="could not be asked"):
        look._ask(nonsense, 0.0)


def test_the_kernel_knows_nothing_of_a_process_that_is_gone(tmp_path: Path) -> None:
    assert kernel.threads(1, tmp_path) == {}
