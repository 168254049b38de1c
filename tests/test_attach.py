"""Attaching and detaching: what is touched, what is put back, and what is left as it is."""

from __future__ import annotations

import asyncio
import asyncio.base_events
import asyncio.events
import functools
import gc
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio._backends._asyncio
import anyio._backends._trio
import mcp.server.stdio
import mcp.server.streamable_http
import mcp.server.streamable_http_manager
import pytest
import trio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams

import mcp_probe
from mcp_probe.errors import OptionError, ProbeError, UnsupportedServerError
from mcp_probe.model import PoolSample
from mcp_probe.session import Probe, attached
from tests.kept import Kept, Log, keep, probed, unavailable
from tests.loops import LOOPS

on_each_loop = pytest.mark.parametrize("anyio_backend", LOOPS)

TOUCHED: dict[str, Any] = {
    "asyncio.Handle": asyncio.events.Handle,
    "asyncio.TimerHandle": asyncio.events.TimerHandle,
    "asyncio.BaseEventLoop": asyncio.base_events.BaseEventLoop,
    "ThreadPoolExecutor": ThreadPoolExecutor,
    "Thread": threading.Thread,
    "anyio asyncio backend": anyio._backends._asyncio.AsyncIOBackend,
    "anyio trio backend": anyio._backends._trio.TrioBackend,
    "mcp.server.stdio": mcp.server.stdio,
    "http transport": mcp.server.streamable_http.StreamableHTTPServerTransport,
    "http manager": mcp.server.streamable_http_manager.StreamableHTTPSessionManager,
    "http app": mcp.server.streamable_http_manager.StreamableHTTPASGIApp,
    "MCPServer": MCPServer,
    "Server": Server,
}


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLOW_STEP_MS", "REPORT", "RECORD"):
        monkeypatch.delenv(f"MCP_PROBE_{name}", raising=False)


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("mcp_probe")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Gate:
    """Holds a tool call where it is."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.leave = anyio.Event()


def make_server(gate: Gate | None = None, name: str = "attached") -> MCPServer:
    server = MCPServer(name, log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + b

    @server.tool()
    def in_thread(text: str) -> str:
        return text[::-1]

    @server.tool()
    async def meet() -> str:
        assert gate is not None
        gate.entered.set()
        await gate.leave.wait()
        return "met"

    return server


def lowlevel(server: MCPServer) -> Server[Any]:
    inner: Server[Any] = server._lowlevel_server
    return inner


async def use(server: MCPServer) -> None:
    """One call of each kind, over streams and in process."""
    for target in (InMemoryTransport(server), server):
        async with Client(target) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            assert not (await client.call_tool("in_thread", {"text": "ab"})).is_error


def running_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Snapshot:
    """Every attribute of everything a probe may touch, by identity."""

    def __init__(self, server: MCPServer) -> None:
        inner = lowlevel(server)
        owners = {**TOUCHED, "server": server, "low-level server": inner}
        loop = running_loop()
        if loop is not None:
            owners["loop"] = loop
            if getattr(loop, "_selector", None) is not None:
                owners["selector"] = loop._selector
        else:
            runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
            owners["trio instruments"] = dict(runner.instruments)
        self.vars = {label: dict(owner if isinstance(owner, dict) else vars(owner)) for label, owner in owners.items()}
        self.lists: dict[str, tuple[Any, list[Any]]] = {
            "middleware": (inner.middleware, list(inner.middleware)),
            "gc.callbacks": (gc.callbacks, list(gc.callbacks)),
            "sys.meta_path": (sys.meta_path, list(sys.meta_path)),
        }
        self.threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("mcp-probe")}

    # What running requests changes without any probe, or what only counts.
    VOLATILE = frozenset({"_ready", "_scheduled", "_timer_cancelled_count", "_counter", "_idle_semaphore"})

    def differences(self, then: Snapshot) -> list[str]:
        """What is another object than ``then``."""
        found = []
        for label, names in self.vars.items():
            before = then.vars[label]
            for name in sorted({str(key) for key in names.keys() ^ before.keys()}):
                found.append(f"{label}.{name} {'added' if name in names else 'removed'}")
            for name in names.keys() & before.keys():
                changed = names[name] is not before[name] and names[name] != before[name]
                replaced = changed or (names[name] is not before[name] and callable(names[name]))
                if replaced and name not in self.VOLATILE:
                    found.append(f"{label}.{name} replaced")
        for label, (items, content) in self.lists.items():
            items_before, content_before = then.lists[label]
            if items is not items_before or [id(one) for one in content] != [id(one) for one in content_before]:
                found.append(f"{label}: {content_before} -> {content}")
        if self.threads != then.threads:
            found.append(f"threads: {sorted(self.threads ^ then.threads)}")
        return found


@on_each_loop
async def test_detach_puts_back_every_object_it_touched() -> None:
    server = make_server()
    await use(server)
    before = Snapshot(server)
    probe = mcp_probe.attach(server)
    await use(server)
    assert Snapshot(server).differences(before), "nothing was touched: the snapshot looks at the wrong things"
    probe.detach()
    await anyio.lowlevel.checkpoint()  # trio takes an instrument out only at the next step
    await anyio.lowlevel.checkpoint()
    assert Snapshot(server).differences(before) == []


@on_each_loop
async def test_last_of_two_probes_puts_back_what_they_share() -> None:
    first_server, second_server = make_server(), make_server()
    await use(first_server)
    before = Snapshot(first_server)
    first, second = mcp_probe.attach(first_server), mcp_probe.attach(second_server)
    await use(first_server)
    first.detach()
    kept = keep(second)
    await use(second_server)
    second.detach()
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    assert Snapshot(first_server).differences(before) == []
    assert len(kept.requests("add")) == 2
    assert all(record.steps > 0 for record in kept.requests("add"))


@on_each_loop
async def test_server_can_be_attached_again_after_detaching() -> None:
    server = make_server()
    for _ in range(3):
        with probed(server) as kept:
            await use(server)
        assert len(kept.requests("add")) == 2
        assert all(record.steps > 0 for record in kept.requests("add"))


def test_attaching_again_gives_the_same_probe() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    assert mcp_probe.attach(server) is probe
    assert mcp_probe.attach(lowlevel(server)) is probe
    assert attached() == (probe,)
    assert sum(type(item).__name__ == "ServerMiddleware" for item in lowlevel(server).middleware) == 1
    probe.detach()
    assert attached() == ()
    probe.detach()


async def test_detached_server_is_no_longer_recorded() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    probe.detach()
    await use(server)
    assert kept.requests() == []


async def test_server_that_is_not_attached_is_not_recorded() -> None:
    attached_server, other = make_server(), make_server()
    with probed(attached_server) as kept:
        await use(other)
        await use(attached_server)
        await use(other)
    assert len(kept.requests("add")) == 2


async def test_each_of_two_probes_sees_only_the_requests_of_its_own_server() -> None:
    one, two = make_server(name="one"), make_server(name="two")

    @one.tool()
    async def only_one() -> str:
        return "1"

    @two.tool()
    async def only_two() -> str:
        return "2"

    with probed(one) as of_one, probed(two) as of_two:
        async with Client(InMemoryTransport(one)) as first, Client(two) as second:
            for _ in range(3):
                await first.call_tool("only_one", {})
                await second.call_tool("only_two", {})
    assert {record.name for record in of_one.requests() if record.name} == {"only_one"}
    assert {record.name for record in of_two.requests() if record.name} == {"only_two"}
    assert of_one.header().server == "one"
    assert of_two.header().server == "two"


def work_for(seconds: float) -> None:
    """Holds the thread; a test that needs a long step has no event to wait for."""
    import time

    time.sleep(seconds)


async def test_each_of_two_probes_sees_the_slow_steps_of_the_loop_they_share() -> None:
    one, two = make_server(), make_server()

    @one.tool()
    async def block() -> str:
        work_for(0.02)
        return "done"

    with probed(one) as of_one, probed(two) as of_two:
        async with Client(InMemoryTransport(one)) as first, Client(InMemoryTransport(two)) as second:
            for _ in range(10):
                await first.call_tool("block", {})
                await second.call_tool("add", {"a": 1, "b": 2})
    for kept in (of_one, of_two):
        # Others of their steps are short, unless the machine was kept from them.
        blocked = [
            step for step in kept.steps() if step.operation == "block" and step.end_ns - step.start_ns >= 2 * 10**7
        ]
        assert len({step.request for step in blocked}) == 10
        assert [frame for frame in kept.frames if type(frame).__name__ == "LoopSample"]


@pytest.mark.parametrize(
    ("program", "name"),
    [("/srv/app/weather.py", "weather.py"), ("/srv/weather/__main__.py", "weather"), ("-c", "server"), ("", "server")],
)
async def test_server_that_only_its_middleware_is_known_of_is_named_by_its_program(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    probe = Probe()
    kept = keep(probe)
    await use_add(MCPServer("by middleware", middleware=[probe.middleware], log_level="CRITICAL"))
    probe.detach()
    assert kept.header().server == name


async def test_middleware_form_records_without_attaching() -> None:
    probe = Probe()
    kept = keep(probe)
    server = MCPServer("by middleware", middleware=[probe.middleware], log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    await use_add(server)
    probe.detach()
    await use_add(server)
    assert [record.outcome for record in kept.requests("add")] == ["ok"]
    assert not unavailable(kept.only("add"))


async def use_add(server: MCPServer) -> None:
    async with Client(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})


async def test_streams_form_follows_a_bare_transport_loop() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    async with bare_loop(lowlevel(server), probe) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    probe.detach()
    record = kept.only("add")
    assert record.outcome == "ok"
    assert unavailable(record) >= {"queue_transport", "write_flush"}
    assert record.budget.queue_transport is None
    assert record.budget.queue_dispatch is not None
    assert record.steps > 0


@asynccontextmanager
async def bare_loop(server: Server[Any], probe: Probe) -> AsyncIterator[Client]:
    class Given:
        async def __aenter__(self) -> Any:
            return theirs

        async def __aexit__(self, *exc: object) -> None:
            return None

    async with create_client_server_memory_streams() as (theirs, ours), anyio.create_task_group() as group:
        streams = probe.streams(*ours)
        assert probe.streams(*streams) == streams, "a pair that is followed already stays as it is"
        group.start_soon(server.run, *streams, server.create_initialization_options())
        async with Client(Given()) as client:
            yield client
        group.cancel_scope.cancel()


async def test_profiled_function_is_a_row_of_its_own_and_keeps_its_face() -> None:
    probe = Probe()
    kept = keep(probe)

    @probe.profile
    async def work(a: int, *, b: int = 2) -> int:
        """Works."""
        await anyio.lowlevel.checkpoint()
        return a + b

    fault = LookupError("no")

    @probe.profile
    async def fails() -> None:
        raise fault

    assert await work(1, b=5) == 6
    with pytest.raises(LookupError) as caught:
        await fails()
    assert caught.value is fault
    assert work.__name__ == "work" and work.__doc__ == "Works."
    probe.detach()
    assert await work(1) == 3
    rows = {(record.name or record.method).rsplit(".", 1)[-1]: record for record in kept.requests(kind="function")}
    assert {name: record.outcome for name, record in rows.items()} == {"work": "ok", "fails": "error"}
    assert rows["fails"].error == "LookupError"


@on_each_loop
async def test_attaching_while_the_server_runs_takes_hold_at_the_next_message() -> None:
    gate = Gate()
    server = make_server(gate)
    async with Client(InMemoryTransport(server)) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "meet", {})
                await gate.entered.wait()
                probe = mcp_probe.attach(server)
                kept = keep(probe)
                await client.call_tool("add", {"a": 3, "b": 4})
                await client.call_tool("in_thread", {"text": "abc"})
                gate.leave.set()
        probe.detach()
    assert [record.name for record in kept.requests()] == ["add", "in_thread"]
    assert [record.outcome for record in kept.requests()] == ["ok", "ok"]
    for record in kept.requests():
        assert unavailable(record) == {"queue_transport", "queue_dispatch", "write_wait", "write_flush"}
        assert record.transport == "unknown", "it runs over streams that were made before us"


@on_each_loop
@pytest.mark.parametrize("over_streams", [True, False], ids=["streams", "in process"])
async def test_detaching_while_requests_are_in_flight_lets_them_finish(over_streams: bool) -> None:
    gate = Gate()
    server = make_server(gate)
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    texts: list[str] = []
    async with Client(InMemoryTransport(server) if over_streams else server) as client:

        async def call() -> None:
            result = await client.call_tool("meet", {})
            texts.append(result.content[0].text)  # type: ignore[union-attr]

        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await gate.entered.wait()
                probe.detach()
                result = await client.call_tool("add", {"a": 1, "b": 2})
                gate.leave.set()
        assert result.structured_content == {"result": 3}
        await client.call_tool("in_thread", {"text": "abc"})
    assert texts == ["met"]
    assert kept.only("meet").outcome == "unfinished"
    assert kept.requests("add") == []
    assert probe.take_finished() == [], "a detached probe keeps nothing of what ends after it"


@on_each_loop
async def test_detaching_from_inside_a_tool_lets_it_finish() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)

    @server.tool()
    async def stop_probing() -> str:
        await anyio.lowlevel.checkpoint()
        probe.detach()
        await anyio.lowlevel.checkpoint()
        return "stopped"

    async with Client(InMemoryTransport(server)) as client:
        assert (await client.call_tool("stop_probing", {})).structured_content == {"result": "stopped"}
        assert not (await client.call_tool("in_thread", {"text": "abc"})).is_error
    assert kept.only("stop_probing").outcome == "unfinished"


# --- somebody wraps over us ---


class Wrapped:
    """Somebody else's wrapper around an attribute that the probe has replaced before them."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name, self.calls = owner, name, 0
        self._own = vars(owner).get(name)
        original = getattr(owner, name)
        raw = self._own

        @functools.wraps(original)
        def theirs(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            inner = raw.__get__(None, owner) if isinstance(raw, classmethod) else raw or original
            return inner(*args[1:] if isinstance(raw, classmethod) else args, **kwargs)

        self.theirs: Any = classmethod(theirs) if isinstance(raw, classmethod) else theirs
        setattr(owner, name, self.theirs)

    @property
    def in_place(self) -> bool:
        return vars(self.owner).get(self.name) is self.theirs

    def remove(self, before: Any) -> None:
        """Leaves the attribute as it was before the probe."""
        if before is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, before)


def replaced_by_attaching(server: MCPServer) -> Iterator[tuple[Any, str]]:
    """(owner, name) of each function that stands somewhere else while ``server`` is attached."""
    loop: Any = asyncio.get_running_loop()
    owners = [*TOUCHED.values(), lowlevel(server), server, loop, loop._selector]
    before = [dict(vars(owner)) for owner in owners]
    probe = mcp_probe.attach(server)
    probe._hooks.loops.follow()
    found = [
        (owner, name)
        for owner, names in zip(owners, before, strict=True)
        for name, value in vars(owner).items()
        if value is not names.get(name) and (callable(value) or isinstance(value, classmethod))
    ]
    probe.detach()
    yield from found


async def use_everything(server: MCPServer) -> None:
    await use(server)
    with ThreadPoolExecutor(1) as pool:
        assert await asyncio.get_running_loop().run_in_executor(pool, str, 5) == "5"
    thread = threading.Thread(target=list)
    thread.start()
    thread.join()
    server.streamable_http_app()


async def test_what_somebody_wrapped_after_us_stays_and_our_part_passes_through(log: Log) -> None:
    server = make_server()
    await use_everything(server)
    replaced = list(replaced_by_attaching(server))
    names = {name for _, name in replaced}
    assert names >= {"run", "submit", "start", "select", "_add_callback", "run_sync_in_worker_thread"}
    for owner, name in replaced:
        before = vars(owner).get(name)
        probe = mcp_probe.attach(server)
        kept = keep(probe)
        await use(server)
        wrapped = Wrapped(owner, name)
        log.messages.clear()
        try:
            await use_everything(server)
            probe.detach()
            assert wrapped.in_place, name
            [said] = [message for message in log.messages if "was wrapped by somebody else" in message]
            assert f".{name} was wrapped by somebody else after us: left as it is" in said
            await use_everything(server)
        finally:
            wrapped.remove(before)
        assert len(kept.requests("add")) == 4, name
        assert probe.take_finished() == [], name


async def test_what_was_wrapped_over_does_not_count_twice_for_the_next_probe(log: Log) -> None:
    server = make_server()
    await use_everything(server)
    with probed(server) as kept:
        await use_everything(server)
    once = [record.steps for record in kept.requests("add")]
    for owner, name in replaced_by_attaching(server):
        before = vars(owner).get(name)
        probe = mcp_probe.attach(server)
        wrapped = Wrapped(owner, name)
        try:
            probe.detach()
            with probed(server) as kept:
                await use_everything(server)
            assert [record.steps for record in kept.requests("add")] == once, name
            assert all(job <= 1 for job in thread_jobs(kept).values()), name
        finally:
            wrapped.remove(before)


def thread_jobs(kept: Kept) -> dict[str, int]:
    """Jobs per private pool."""
    pools = [frame for frame in kept.frames if isinstance(frame, PoolSample)]
    return {pool.name: pool.finished for pool in pools if pool.name.startswith("ThreadPoolExecutor")}


# --- refusals ---


@pytest.mark.parametrize("thing", [object(), None, "server", MCPServer, asyncio])
def test_what_is_no_server_is_refused_with_a_sentence(thing: object) -> None:
    with pytest.raises(UnsupportedServerError) as caught:
        mcp_probe.attach(thing)
    sentence = str(caught.value)
    assert type(thing).__qualname__ in sentence
    assert "expected an MCPServer" in sentence
    assert sentence.endswith(".")
    assert attached() == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"slow_step_ms": 0}, "slow_step_ms is 0"),
        ({"slow_step_ms": -1}, "slow_step_ms is -1"),
        ({"slow_step_ms": float("nan")}, "slow_step_ms is nan"),
        ({"slow_step_ms": float("inf")}, "slow_step_ms is inf"),
        ({"slow_step_ms": "ten"}, "slow_step_ms is 'ten'"),
        ({"slow_step": 10}, "Unknown option 'slow_step'"),
        ({"report": 5}, "report is 5"),
        ({"record": 5}, "record is 5"),
    ],
)
def test_option_out_of_range_is_refused_with_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        mcp_probe.attach(make_server(), **options)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")
    assert attached() == ()


def test_option_of_the_environment_is_used_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_SLOW_STEP_MS", "25.5")
    with_environment = mcp_probe.attach(make_server())
    given = mcp_probe.attach(make_server(), slow_step_ms=50)
    steps = [probe.options.slow_step_ms for probe in (with_environment, given)]
    given.detach()
    with_environment.detach()
    assert steps == [25.5, 50]


@pytest.mark.parametrize(
    ("value", "words"), [("soon", "MCP_PROBE_SLOW_STEP_MS is 'soon'"), ("0.1", "slow_step_ms is 0.1")]
)
def test_bad_option_of_the_environment_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, words: str
) -> None:
    monkeypatch.setenv("MCP_PROBE_SLOW_STEP_MS", value)
    with pytest.raises(OptionError) as caught:
        mcp_probe.attach(make_server())
    assert words in str(caught.value)
    assert attached() == ()


def test_recording_that_cannot_be_written_is_refused_and_leaves_nothing_attached(tmp_path: Path) -> None:
    server = make_server()
    threads = set(threading.enumerate())
    before = dict(vars(asyncio.events.Handle)), list(lowlevel(server).middleware)
    with pytest.raises((ProbeError, OSError)) as caught:
        mcp_probe.attach(server, record=str(tmp_path / "no such folder" / "file"))
    assert "no such folder" in str(caught.value)
    assert attached() == ()
    assert (dict(vars(asyncio.events.Handle)), list(lowlevel(server).middleware)) == before
    started = set(threading.enumerate()) - threads
    assert not any(thread.name.startswith("mcp-probe") for thread in started)


async def test_recording_of_an_attached_server_can_be_read_back(tmp_path: Path) -> None:
    from mcp_probe.model import End, RequestRecord
    from mcp_probe.record.file import read_recording

    server = make_server()
    probe = mcp_probe.attach(server, record=str(tmp_path / "file"))
    await use(server)
    probe.detach()
    frames = list(read_recording(tmp_path / "file"))
    assert isinstance(frames[-1], End)
    assert len([frame for frame in frames if isinstance(frame, RequestRecord) and frame.name == "add"]) == 2


async def test_snapshot_counts_requests_in_flight_as_unfinished_and_outlives_detaching() -> None:
    gate = Gate()
    server = make_server(gate)
    probe = mcp_probe.attach(server)
    async with Client(InMemoryTransport(server)) as client:
        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "meet", {})
                await gate.entered.wait()
                await client.call_tool("add", {"a": 1, "b": 2})
                during = probe.snapshot()
                gate.leave.set()
    probe.detach()
    after = probe.snapshot()
    assert during.requests.unfinished == 1
    assert {row.name: row.unfinished for row in during.operations}["meet"] == 1
    assert after.requests.unfinished == 0
    assert {row.name: row.count for row in after.operations}["meet"] == 1


def test_a_message_on_its_way_passes_by_no_middleware_while_another_thread_attaches_and_detaches() -> None:
    """The SDK goes through the list for each message, last one first."""
    server = make_server()
    chain = lowlevel(server).middleware
    chain.append(passing := lambda context, call_next: call_next(context))
    expected = list(reversed(chain))
    probes: list[Probe] = []

    def on_its_way() -> list[Any]:
        going = iter(reversed(lowlevel(server).middleware))
        first = next(going)
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        return [first, *going]

    def change() -> None:
        if probes:
            probes.pop().detach()
        else:
            probes.append(mcp_probe.attach(server))

    assert on_its_way() == expected
    with_ours = list(reversed(lowlevel(server).middleware))
    assert len(with_ours) > len(expected) and on_its_way() == with_ours
    assert list(reversed(lowlevel(server).middleware)) == expected and passing in lowlevel(server).middleware


@pytest.mark.parametrize("changed", ["nothing", "what is there now", "what was there before"])
def test_another_thread_that_detaches_gives_the_server_its_own_list_back(changed: str) -> None:
    server = make_server()
    chain: list[Any] = lowlevel(server).middleware
    expected = list(chain)
    probes: list[Probe] = []
    threads = [
        threading.Thread(target=lambda: probes.append(mcp_probe.attach(server))),
        threading.Thread(target=lambda: probes.pop().detach()),
    ]

    async def passing(context: Any, call_next: Any) -> Any:
        return await call_next(context)

    for thread in threads:
        thread.start()
        thread.join()
        if thread is threads[0] and changed != "nothing":
            now: list[Any] = lowlevel(server).middleware
            for each in (chain if changed == "what was there before" else now, expected):
                each.append(passing)
    assert lowlevel(server).middleware is chain
    assert chain == expected


def test_attaching_and_detaching_many_times_leaves_nothing_behind() -> None:
    server = make_server()
    threads = set(threading.enumerate())
    before = len(gc.callbacks), len(sys.meta_path), len(lowlevel(server).middleware)
    for _ in range(50):
        mcp_probe.attach(server).detach()
    assert (len(gc.callbacks), len(sys.meta_path), len(lowlevel(server).middleware)) == before
    assert set(threading.enumerate()) <= threads  # one of a test before may end meanwhile


def test_detached_probe_can_be_collected() -> None:
    import weakref

    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    gone = weakref.ref(probe)
    probe.detach()
    del probe
    gc.collect()
    assert gone() is None
    assert isinstance(kept, Kept)


def test_repr_says_what_the_probe_is_of() -> None:
    probe = mcp_probe.attach(make_server(name="shop"))
    assert repr(probe) == "<Probe of shop, attached>"
    probe.detach()
    assert repr(probe) == "<Probe of shop, detached>"


def in_loop(run: Callable[[], Any]) -> None:
    asyncio.run(run())


def test_requests_on_a_second_loop_of_the_same_thread_are_followed_too() -> None:
    server = make_server()
    with probed(server) as kept:
        for _ in range(3):
            in_loop(lambda: use(server))
    records = kept.requests("add")
    assert len(records) == 6
    assert [record.steps > 0 for record in records] == [True] * 6
    assert [record.partial for record in records] == [False] * 6
