"""Programs that calls start and wait for, started by functions that were imported before the probe came."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import create_subprocess_exec, create_subprocess_shell
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import Popen, check_output, run
from typing import Any

import anyio
import pytest
import trio

from mcp_probe.adapters.waits.subprocesses import UNKNOWN_PROGRAM, program_of
from tests.adapters.waits.scenes import Scene, play
from tests.loops import LOOPS
from tests.running import Backend, kind_of

SLEEP_S = 0.2
SLEEP = ("sleep", str(SLEEP_S))

IN_THREADS: dict[str, Callable[[], Any]] = {
    "run": lambda: run(SLEEP, check=True),
    "run, output": lambda: run(SLEEP, check=True, capture_output=True),
    "check_output": lambda: check_output(SLEEP),
    "wait": lambda: Popen(SLEEP).wait(),
    "with": lambda: Popen(SLEEP).__exit__(None, None, None),
}
HANDED_OVER: dict[str, Callable[[Callable[[], Any]], Awaitable[Any]]] = {
    "anyio": anyio.to_thread.run_sync,
    "asyncio.to_thread": asyncio.to_thread,
    "run_in_executor": lambda function: asyncio.get_running_loop().run_in_executor(None, function),
}


@pytest.mark.parametrize("hand_over", HANDED_OVER)
@pytest.mark.parametrize("how", IN_THREADS)
def test_a_program_that_a_worker_thread_waits_for_is_named(how: str, hand_over: str) -> None:
    scene = play(lambda scene: scene.call("call", lambda: HANDED_OVER[hand_over](IN_THREADS[how])))
    found = scene.awaits("call", "subprocess")
    assert {one.object for one in found} == {"sleep"}
    assert {one.stage for one in found} == {"executor_run"}
    assert sum(one.calls for one in found) == 1
    # Most of it: on a busy machine the step that handed the job over, and pauses, take some of its time.
    assert scene.waited_ms("call", "subprocess") >= 0.6 * SLEEP_S * 1000
    assert {(one.where or "").partition(":")[0] for one in found} == {__file__}


async def waits() -> None:
    await (await create_subprocess_exec(*SLEEP)).wait()


async def communicates() -> None:
    await (await create_subprocess_exec(*SLEEP, stdout=PIPE)).communicate()


async def reads() -> None:
    process = await create_subprocess_exec(*SLEEP, stdout=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b""
    await process.wait()


async def runs() -> None:
    await anyio.run_process(SLEEP)


async def runs_on_trio() -> None:
    await trio.run_process(SLEEP)


AWAITED = {"wait": waits, "communicate": communicates, "readline": reads, "anyio.run_process": runs}


@pytest.mark.parametrize("backend", LOOPS)
@pytest.mark.parametrize("how", [*AWAITED, "trio.run_process"])
def test_a_program_that_a_task_awaits_is_named(how: str, backend: Backend) -> None:
    if (kind_of(backend) == "trio") != (how == "trio.run_process") and how != "anyio.run_process":
        pytest.skip(f"{how} does not run on {kind_of(backend)}")
    scene = play(lambda scene: scene.call("call", AWAITED.get(how, runs_on_trio)), backend)
    found = [one for one in scene.awaits("call", "subprocess") if one.object == "sleep"]
    record = scene.record("call")
    assert record.budget.awaiting is not None
    # To start a program keeps the loop busy, which then awaits less, or a thread, which it awaits besides.
    least = 0.95 * min(record.budget.awaiting, SLEEP_S * 1e9)
    assert least <= sum(one.ns for one in found) <= record.budget.awaiting
    assert max(one.to_ns for one in found) - min(one.from_ns for one in found) >= least
    assert {(one.where or __file__).rpartition(":")[0] or __file__ for one in found} == {__file__}
    assert {one.tag for one in found} == {"exact"}


def test_a_shell_is_named_and_what_it_runs_is_not() -> None:
    async def scenario(scene: Scene) -> None:
        async def awaited() -> None:
            await (await create_subprocess_shell("sleep 0.05; : hunter2")).wait()

        await scene.call("thread", lambda: anyio.to_thread.run_sync(lambda: run("sleep 0.05; : hunter2", shell=True)))
        await scene.call("task", awaited)

    scene = play(scenario)
    for name in ("thread", "task"):
        assert {one.object for one in scene.awaits(name, "subprocess")} == {"sh"}
    assert "hunter2" not in scene.everything()


SECRETS = ("hunter2", "swordfish", "opensesame", "tr0ub4dor")


def test_nothing_of_a_program_leaves_but_its_base_name(tmp_path: Path) -> None:
    folder = tmp_path / SECRETS[0]
    folder.mkdir()
    program = folder / "program"
    program.write_text("#!/bin/sh\nsleep 0.05\n")
    program.chmod(0o755)
    options: dict[str, Any] = {"env": {"PASSWORD": SECRETS[2], "PATH": "/usr/bin:/bin"}, "cwd": folder}

    async def scenario(scene: Scene) -> None:
        async def awaited() -> None:
            process = await create_subprocess_exec(program, SECRETS[1], stdin=PIPE, **options)
            await process.communicate(SECRETS[3].encode())

        def waited() -> None:
            run([program, SECRETS[1]], input=SECRETS[3].encode(), check=True, **options)

        def fails() -> None:
            with pytest.raises(FileNotFoundError):
                run(f"nothing --password {SECRETS[1]}", **options)

        await scene.call("task", awaited)
        await scene.call("thread", lambda: anyio.to_thread.run_sync(waited))
        await scene.call("fails", lambda: anyio.to_thread.run_sync(fails))

    scene = play(scenario)
    for name in ("task", "thread"):
        assert {one.object for one in scene.awaits(name, "subprocess")} == {"program"}
    everything = scene.everything()
    assert '"program"' in everything
    assert [secret for secret in SECRETS if secret in everything] == []


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [
        ((["/usr/bin/git", "log"],), {}, "git"),
        (("/usr/bin/git",), {}, "git"),
        ((b"/usr/bin/git",), {}, "git"),
        ((), {"args": [Path("/usr/bin/git")]}, "git"),
        (("git log secret",), {"shell": True}, "sh"),
        ((["git log secret"],), {"shell": True, "executable": "/bin/bash"}, "bash"),
        ((["git"], -1, "/opt/secret/git2"), {}, "git2"),
        ((["git"], -1, None, None, None, None, None, True, True), {}, "sh"),
        (("curl -H secret /x",), {}, UNKNOWN_PROGRAM),
        ((["curl -H secret"],), {}, UNKNOWN_PROGRAM),
        ((["/opt/of secret/"],), {}, UNKNOWN_PROGRAM),
        ((iter(["git"]),), {}, UNKNOWN_PROGRAM),
        (([],), {}, UNKNOWN_PROGRAM),
        ((["x" * 100],), {}, UNKNOWN_PROGRAM),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
def test_the_name_of_a_program(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
    assert program_of(args, kwargs) == name


def test_readers_of_sockets_and_processes_outside_of_requests_are_let_alone() -> None:
    async def scenario(scene: Scene) -> None:
        assert await (await create_subprocess_exec("true")).wait() == 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.05)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def called() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

        await scene.call("call", called)
        server.close()

    scene = play(scenario)
    assert scene.awaits("call", "subprocess") == []


def test_the_hooks_are_gone_after_detach() -> None:
    owners = (Popen, asyncio.subprocess.Process, asyncio.subprocess.SubprocessStreamProtocol, asyncio.StreamReader)
    before = [dict(vars(owner)) for owner in owners]

    async def scenario(scene: Scene) -> None:
        assert vars(Popen)["wait"] is not before[0]["wait"]

    play(scenario)
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_process_class_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "communicate", None)
    before = vars(Popen)["wait"]

    async def scenario(scene: Scene) -> None:
        assert vars(Popen)["wait"] is before

    scene = play(scenario)
    assert "Popen.communicate is not as in" in scene.hooks["awaits (subprocess)"]
