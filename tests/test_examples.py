"""Every example runs for real, and its report, with the tool that was called, appears on stderr at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from mcp.client import Client

from mcp_probe import native
from mcp_probe.workloads.client import LoadSession, stdio_client_session
from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


async def ask_two_prices(session: LoadSession) -> None:
    for item, cents in (("tea", "320"), ("cake", "450")):
        answer = await session.call("price", item=item)
        assert (answer.error, answer.text) == (None, cents)


async def report_of_stdio(
    python: str,
    example: str,
    stderr_path: Path,
    ask: Callable[[LoadSession], Awaitable[None]] = ask_two_prices,
) -> str:
    """What ``example`` wrote to stderr, served by ``python`` to a client that asked."""
    with stderr_path.open("w+") as stderr:
        async with stdio_client_session(
            [python, str(EXAMPLES / example)], mode="legacy", environment={"PYTHONPATH": str(ROOT)}, stderr=stderr
        ) as session:
            await ask(session)
        stderr.seek(0)
        return stderr.read()


def assert_reports(said: str, *operations: str) -> None:
    assert "Traceback" not in said
    verdict = next(
        (n for n, line in enumerate(said.splitlines()) if "─ Verdict ─" in line or "- Verdict -" in line), None
    )
    assert verdict is not None, f"no report in: {said}"
    report = "\n".join(said.splitlines()[verdict:])
    for operation in operations:
        assert operation in report


@pytest.mark.parametrize("example", ["stdio_server.py", "lowlevel_loop.py"])
async def test_stdio_example_reports_its_tool(example: str, tmp_path: Path) -> None:
    assert_reports(await report_of_stdio(sys.executable, example, tmp_path / "stderr"), "price")


async def test_the_example_of_a_lock_names_it_and_who_held_it(tmp_path: Path) -> None:
    async def ask(session: LoadSession) -> None:
        async with anyio.create_task_group() as tasks:
            for tool in ("append_note", "list_notes"):
                tasks.start_soon(session.call, tool)

    said = await report_of_stdio(sys.executable, "held_lock.py", tmp_path / "stderr", ask)
    assert_reports(said, "append_note", "list_notes", "What they waited for", "asyncio.Lock held_lock.GATE")
    assert "held by append_note" in said


async def test_the_example_of_a_semaphore_is_not_healthy_but_named_with_its_limit(tmp_path: Path) -> None:
    async def ask(session: LoadSession) -> None:
        for _ in range(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(16):
                    tasks.start_soon(lambda: session.call("quote", symbol="abc"))
        await anyio.sleep(1)  # statistics need a second

    for _ in range(3):  # on a machine that is short of CPU calls wait for that, not for the semaphore
        said = await report_of_stdio(sys.executable, "narrow_semaphore.py", tmp_path / "stderr", ask)
        assert_reports(said, "quote", "What they waited for")
        assert "narrow_semaphore.TWO" in said and "Healthy" not in said
        if "serial-handler" in said:
            assert "limit of 2" in said
            return
    assert "long-wait" in said or "host-pressure" in said


@pytest.mark.parametrize("environment", ["fastmcp2", "fastmcp3", "fastmcp4"])
async def test_fastmcp_example_reports_its_tool(
    environment: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = str(env_python(environment))
    assert_reports(await report_of_stdio(python, "fastmcp_server.py", tmp_path / "stderr"), "price")


@pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
async def test_leak_example_names_the_tool_that_grows_once_it_hunts_and_goes_back(tmp_path: Path) -> None:
    async def ask(session: LoadSession) -> None:
        await ask_two_prices(session)
        assert (await session.call("hunt", on=True)).text == "leaks"
        for _ in range(100):
            await session.call("price", item="tea")
        await anyio.sleep(2)  # it looks at most twice a second
        assert (await session.call("hunt", on=False)).text == "light"

    said = await report_of_stdio(sys.executable, "leak_hunt.py", tmp_path / "stderr", ask)
    assert_reports(said, "price", "hunt", "memory-growth")
    (row,) = [line.split() for line in said.splitlines() if line.startswith(" price") and "grows" in line]
    assert row[-1] == "100", "calls before the hunt are not its own"


def test_decorator_example_reports_both_functions_and_the_blocking_line() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "decorator.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == ""
    lines = (EXAMPLES / "decorator.py").read_text().splitlines()
    blocking = next(number for number, line in enumerate(lines, 1) if "time.sleep" in line)
    assert_reports(done.stderr, "price", "stock_taking", f"decorator.py:{blocking}")


async def listening(port: int) -> None:
    """Returns once something accepts connections on ``port``; the caller bounds the wait."""
    while True:
        try:
            await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            return
        except OSError:
            await anyio.sleep(0.05)


async def test_http_example_reports_its_tool_when_it_is_interrupted(tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "stderr").open("w+") as stderr:
        server = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "http_server.py"), str(port)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=stderr,
        )
        try:
            with anyio.fail_after(100):
                await listening(port)
                async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                    result = await client.call_tool("price", {"item": "tea"})
            assert result.content[0].type == "text" and result.content[0].text == "320"
            server.send_signal(signal.SIGINT)
            server.wait(timeout=120)
        finally:
            server.kill()
            server.wait()
        stderr.seek(0)
        assert_reports(stderr.read(), "price")


def test_what_the_probe_touched_is_put_back() -> None:
    command = [sys.executable, str(EXAMPLES / "gone.py")]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "False True\n"


def test_every_example_is_short_says_how_to_run_it_and_is_run_here() -> None:
    here = Path(__file__).read_text()
    examples = sorted(EXAMPLES.glob("*.py"))
    assert len(examples) == 9
    for example in examples:
        text = example.read_text()
        assert len(text.splitlines()) < 40
        assert text.startswith("# ") and f"python examples/{example.name}" in text
        assert f'"{example.name}"' in here
