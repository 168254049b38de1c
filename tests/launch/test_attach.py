"""`mcp-probe attach` on real servers that run already: in, and out again without a trace."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from mcp_probe.model import RequestRecord, Timeline
from mcp_probe.record.file import read_recording
from tests.launch.attach_cells import python_of
from tests.launch.attaching import LIMIT_S, Command, Served, attach, attaching, serving
from tools.interpreters import ROOT

ATTACHED = "Ctrl-C detaches and reports"
CELLS = [
    ("3.14", "mcp 2.3", "stdio", "asyncio"),
]
MORE = [
    (version, sdk, how, loop)
    for version in ("3.14", "3.15")
    for sdk in ("mcp 2.3", "mcp 1.30")
    for how, loop in (
        ("stdio", "asyncio"),
        ("stdio", "uvloop"),
        ("stdio", "trio"),
        ("http", "asyncio"),
        ("http", "uvloop"),
    )
    if (version, sdk, how, loop) not in CELLS and not (sdk == "mcp 1.30" and loop in ("trio", "uvloop"))
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)}


async def parts(server: Served) -> dict[str, str]:
    path = server.errors.with_name("fingerprint")  # too long for an answer
    found: dict[str, str] = json.loads(Path(await server.ask("fingerprint", path=str(path))).read_text())
    return found


async def settled(server: Served) -> dict[str, str]:
    """What the server consists of, without what changes by itself between two calls."""
    first = [await parts(server) for _ in range(3)]
    return {key: value for key, value in first[-1].items() if all(one.get(key) == value for one in first)}


async def same_as(
    server: Served, before: dict[str, str], *, patient: bool = True
) -> dict[str, tuple[str | None, str | None]]:
    """What differs at last: a thread of ours may take a moment to end after it has said that it does."""
    left: dict[str, tuple[str | None, str | None]] = {}
    for _ in range(8 if patient else 1):
        now = await parts(server)
        left = changed(before, {key: now[key] for key in before if key in now})
        if not left:
            break
        await anyio.sleep(0.3)
    return left


async def inside(command: Command, server: Served) -> None:
    """A server without requests runs no Python, so it gets some until the probe is in.

    None is cancelled: a session of mcp 1.30 over HTTP does not outlive that.
    """
    attached = anyio.Event()

    async def poke() -> None:
        while not attached.is_set():
            await server.ask("in_thread", text="ab")
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as group:
        group.start_soon(poke)
        await command.until(ATTACHED)
        attached.set()


async def visit(server: Served, folder: Path, calls: int) -> dict[str, object]:
    """Attach, make ``calls`` calls of `add`, end it as a terminal would; its summary."""
    async with attaching(server.pid, "--json", str(folder / "summary.json")) as command:
        await inside(command, server)
        for number in range(calls):
            assert await server.ask("add", a=number, b=1) == str(number + 1)
        code, _ = await command.end(signal.SIGINT)
    assert code == 0, command.told
    found: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return found


async def check_cell(version: str, sdk: str, how: str, loop: str, folder: Path) -> None:
    async with serving(python_of(version, sdk), folder, how, loop) as server:
        await visit(server, folder, 1)  # what it imports stays imported
        before = await settled(server)
        summary = await visit(server, folder, 12)
        left = await same_as(server, before)
        assert await server.ask("add", a=1, b=1) == "2"
    operations = {each["name"]: each for each in summary["operations"]}  # type: ignore[attr-defined]
    assert operations["add"]["count"] == 12
    assert operations["add"]["errors"] == 0
    assert operations["add"]["budget_ms"]["busy"] > 0
    assert summary["server"]["loop"] == loop  # type: ignore[index]
    assert summary["server"]["name"] == "attached"  # type: ignore[index]
    assert left == {}
    errors = server.errors.read_text()
    assert "mcp_probe:" not in errors and "Exception ignored" not in errors, errors
    assert "Traceback" not in errors or "ClosedResourceError" in errors  # that is mcp 1.x over HTTP, without us, too


@pytest.mark.parametrize(("version", "sdk", "how", "loop"), CELLS)
async def test_calls_of_a_running_server_are_counted_and_nothing_is_left(
    version: str, sdk: str, how: str, loop: str, tmp_path: Path
) -> None:
    await check_cell(version, sdk, how, loop, tmp_path)


@pytest.mark.endurance
@pytest.mark.parametrize(("version", "sdk", "how", "loop"), MORE)
async def test_so_they_are_on_every_loop_and_sdk(version: str, sdk: str, how: str, loop: str, tmp_path: Path) -> None:
    await check_cell(version, sdk, how, loop, tmp_path)


async def test_a_deadlock_is_seen_from_outside_and_the_probe_gets_in_when_woken(tmp_path: Path) -> None:
    async with serving(python_of("3.14"), tmp_path) as server, anyio.create_task_group() as calls:
        calls.start_soon(lambda: server.ask("deadlock", first="a", second="b"))
        calls.start_soon(lambda: server.ask("deadlock", first="b", second="a"))
        while True:  # until both hold one lock, and wait for the other
            looked = json.loads((await attach(server.pid, "--look", "--json", "-"))[1])
            if sum(task["kind"] == "lock" for task in looked["tasks"]) == 2:
                break
        async with attaching(server.pid, "--wake", "--record", str(tmp_path / "calls")) as command:
            await command.until(ATTACHED)
            assert await server.ask("add", a=20, b=2) == "22"
            code, out = await command.end(signal.SIGINT)
        calls.cancel_scope.cancel()
    hangs = line_of("the line that hangs")
    waiting = [task for task in looked["tasks"] if task["kind"] == "lock"]
    assert [task["place"]["line"] for task in waiting] == [hangs, hangs]
    assert [task["chain"][0]["function"] for task in waiting] == ["Lock.acquire"] * 2
    assert [each["state"] for each in looked["verdicts"]] == ["waits"]
    assert code == 0
    assert "deadlock ×2" in out and "wait for a lock" in out and f"attached_server.py:{hangs}" in out
    records = [frame for frame in read_recording(tmp_path / "calls") if isinstance(frame, RequestRecord)]
    assert [record.name for record in records if record.outcome == "ok"] == ["add"]


@pytest.mark.parametrize(
    ("tool", "state", "marker"), [("block", "held", "blocks"), ("compute", "computes", "computes")]
)
async def test_the_line_that_holds_the_loop_is_named_while_it_does(
    tool: str, state: str, marker: str, tmp_path: Path
) -> None:
    async with serving(python_of("3.15"), tmp_path) as server, anyio.create_task_group() as calls:
        calls.start_soon(lambda: server.ask(tool, seconds=LIMIT_S))
        looked: dict[str, object] = {}
        with anyio.fail_after(LIMIT_S):
            while not (looked and looked["verdicts"][0]["state"] == state):  # type: ignore[index]
                looked = json.loads((await attach(server.pid, "--look", "--json", "-"))[1])
        os.kill(server.pid, signal.SIGKILL)
        calls.cancel_scope.cancel()
    line = line_of(f"the line that {marker}")
    sentence = looked["verdicts"][0]["sentences"][0]  # type: ignore[index]
    assert f"is held by {tool}, " in sentence and f"attached_server.py:{line}" in sentence, sentence


async def test_who_gives_up_waiting_leaves_nothing_that_the_server_would_run(tmp_path: Path) -> None:
    async with serving(python_of("3.14"), tmp_path) as server:
        before = await settled(server)
        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: server.ask("block", seconds=8.0))
            await anyio.sleep(0.5)
            earlier, new = tmp_path / "earlier.json", tmp_path / "new.html"
            earlier.write_text("{}")
            async with attaching(server.pid, "--json", str(earlier), "--html", str(new)) as command:
                await command.until("waiting for the server to run Python")
                code, out = await command.end(signal.SIGINT)
        assert (earlier.read_text(), new.exists()) == ("{}", False)
        assert code == 2 and "did not run Python" in command.told, command.told
        assert "Tasks:" in out
        assert await same_as(server, before) == {}
        assert "mcp_probe" not in (await parts(server))["known threads"]
    assert server.errors.read_text() == ""


async def test_the_probe_leaves_when_the_command_is_killed(tmp_path: Path) -> None:
    async with serving(python_of("3.14"), tmp_path) as server:
        await visit(server, tmp_path, 1)
        before = await settled(server)
        async with attaching(server.pid) as command:
            await inside(command, server)
            assert await same_as(server, before, patient=False) != {}
            await command.end(signal.SIGKILL)
        assert await same_as(server, before) == {}


async def test_a_server_that_ends_meanwhile_is_reported(tmp_path: Path) -> None:
    async with (
        serving(python_of("3.14"), tmp_path, "http") as server,
        attaching(
            server.pid, "--json", str(tmp_path / "json"), "--record", str(tmp_path / "calls"), "--full"
        ) as command,
    ):
        await command.until(ATTACHED)
        for number in range(3):
            await server.ask("add", a=number, b=1)
        os.kill(server.pid, signal.SIGTERM)
        code, _ = await command.end()
    assert code == 0
    assert f"Process {server.pid} has ended" in command.told
    summary = json.loads((tmp_path / "json").read_text())
    assert {each["name"]: each["count"] for each in summary["operations"]}["add"] == 3
    assert sum(isinstance(frame, Timeline) for frame in read_recording(tmp_path / "calls")) >= 3


async def test_a_second_probe_is_refused_and_says_whose_the_first_is(tmp_path: Path) -> None:
    python = python_of("3.14")
    async with serving(python, tmp_path) as server, attaching(server.pid) as command:
        await inside(command, server)
        second = await attach(server.pid, "--wake")
        await command.end(signal.SIGINT)
    async with serving(python, tmp_path, PYTHONPATH=str(ROOT), ATTACHED_PROBE="1") as server:
        third = await attach(server.pid, "--wake")
        assert await server.ask("add", a=1, b=1) == "2"
    assert second[0] == third[0] == 2
    assert "has a probe already: another `mcp-probe attach` is in it" in second[2]
    assert "has a probe already: its own code has attached one" in third[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--look", "--record", "{}", "--fail-on", "warn"], "nothing is measured for --record, --fail-on"),
        (["--record-limit", "1MB"], "--record-limit was given without --record"),
        (["--record", "{}", "--record-limit", "7 apples"], "7 apples"),
        (["--otlp", "ftp://example.org"], "expected a URL with http or https"),
    ],
)
async def test_options_that_make_no_sense_inject_nothing(options: list[str], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "made"
    code, _, told = await attach(os.getpid(), *(option.format(path) for option in options))
    assert code == 2 and sentence in told, told
    assert not path.exists() or path.stat().st_size == 0


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import time\nwhile True: time.sleep(0.01)", "has not imported the mcp package"),
        ("import time, mcp.server.lowlevel.server\nwhile True: time.sleep(0.01)", "has no MCP server"),
    ],
)
async def test_what_is_no_server_is_told_so(program: str, words: str) -> None:
    async with await anyio.open_process([str(python_of("3.14")), "-c", program], stdin=None) as process:
        code, _, told = await attach(process.pid)
        process.kill()
    assert code == 2
    assert words in told, told


async def under_load(server: Served, stop: anyio.Event, answered: list[int]) -> None:
    while not stop.is_set():
        number = len(answered)
        assert await server.ask("add", a=number, b=1) == str(number + 1)
        assert await server.ask("in_thread", text="ab") == "AB"
        answered.append(number)


async def rounds(python: Path, folder: Path, how: str, count: int) -> None:
    """``count`` visits while two clients call without pause: each answer is right, and nothing is left."""
    async with serving(python, folder, how) as server:
        await visit(server, folder, 1)
        async with anyio.create_task_group() as group:
            for _ in range(2):  # over HTTP each of the two has a connection, which stays
                group.start_soon(lambda: server.ask("in_thread", text="ab"))
        before = await settled(server)
        stop, answered = anyio.Event(), list[int]()
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(under_load, server, stop, answered)
            script = [sys.executable, "-m", "tests.launch.attach_rounds", str(server.pid), str(count)]
            done = await anyio.run_process(script, check=False, cwd=ROOT)
            since = len(answered)
            while len(answered) < since + 3:
                await anyio.sleep(0.01)
            stop.set()
        assert done.returncode == 0, done.stderr.decode()
        told = json.loads(done.stdout)
        assert told["visits"] == count and told["requests"] > 0
        assert await same_as(server, before) == {}
    assert "Traceback" not in server.errors.read_text()


async def test_visits_under_load_change_no_answer(tmp_path: Path) -> None:
    await rounds(python_of("3.14"), tmp_path, "stdio", 5)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("version", "how"), [("3.14", "stdio"), ("3.15", "http")])
async def test_a_thousand_visits_under_load_change_no_answer(version: str, how: str, tmp_path: Path) -> None:
    await rounds(python_of(version), tmp_path, how, 1000)


def line_of(marker: str) -> int:
    lines = (Path(__file__).with_name("attached_server.py")).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))
