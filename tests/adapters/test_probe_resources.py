"""The probe's resources on servers: what an agent reads there, and what stays the server's own."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import ListResourcesResult, ReadResourceResult, Resource, TextResourceContents

from mcp_probe.adapters.probe_resources import KINDS, _fits
from mcp_probe.aggregate.findings import CHECKS
from mcp_probe.session import attach
from tests.loops import LOOPS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SERVER = HERE / "resources_server.py"
FAULT_LINE = next(n for n, line in enumerate(SERVER.read_text().splitlines(), 1) if "# the fault" in line)
OURS = list(KINDS)

pytestmark = pytest.mark.anyio


def slow_server() -> MCPServer:
    server = MCPServer("slow")

    @server.tool()
    async def quick() -> str:
        return "quick"

    return server


async def uris_of(client: Any) -> list[str]:
    return [str(each.uri) for each in (await client.list_resources()).resources]


async def text_of(client: Any, uri: str) -> str:
    [found] = (await client.read_resource(uri)).contents
    return str(found.text)


# --- in process -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_an_agent_reads_what_was_measured_and_its_reading_is_no_request_of_the_report() -> None:
    server = slow_server()
    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            for _ in range(3):
                await client.call_tool("quick", {})
            found = json.loads(await text_of(client, "probe://findings"))
            assert {row["name"]: row["count"] for row in found["operations"]}["quick"] == 3
            assert {each["code"] for each in found["findings"]} <= set(CHECKS)
            assert (await text_of(client, "probe://report")).startswith("slow · ")
        assert "resources/read" not in {row.name for row in probe.snapshot().operations}
        assert probe.snapshot().requests.unfinished == 0
    finally:
        probe.detach()


async def test_nothing_is_listed_unless_asked_for() -> None:
    server = slow_server()
    probe = attach(server)
    try:
        async with Client(server) as client:
            assert await uris_of(client) == []
            with pytest.raises(Exception, match="probe://report"):
                await client.read_resource("probe://report")
    finally:
        probe.detach()


async def test_detaching_removes_them_and_puts_the_servers_methods_back() -> None:
    server = slow_server()
    before = dict(vars(server._lowlevel_server))
    probe = attach(server, resources=True)
    async with Client(server) as client:
        assert await uris_of(client) == OURS
        probe.detach()
        assert await uris_of(client) == []
        with pytest.raises(Exception, match="probe://report"):
            await client.read_resource("probe://report")
    after = vars(server._lowlevel_server)
    assert {name: after[name] for name in before} == before
    assert "get_request_handler" not in after and "get_capabilities" not in after


async def test_the_servers_own_resources_come_first_and_one_of_our_scheme_stays_its_own() -> None:
    server = slow_server()

    @server.resource("note://one")
    def note() -> str:
        return "one"

    @server.resource("probe://report")
    def mine() -> str:
        return "the server's own"

    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            assert await uris_of(client) == ["note://one", "probe://report", "probe://findings"]
            assert await text_of(client, "probe://report") == "the server's own"
            assert json.loads(await text_of(client, "probe://findings"))["server"]["name"] == "slow"
        assert {row.name: row.count for row in probe.snapshot().operations}["resources/read"] == 1
    finally:
        probe.detach()


async def test_a_template_of_the_server_keeps_what_fits_it() -> None:
    server = slow_server()

    @server.resource("probe://{name}")
    def mine(name: str) -> str:
        return f"own {name}"

    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            assert await text_of(client, "probe://findings") == "own findings"
    finally:
        probe.detach()


async def test_errors_of_the_server_stay_as_they_were() -> None:
    async def told(server: Any) -> list[str]:
        found = []
        async with Client(server) as client:
            for uri in ("probe://other", "note://none"):
                with pytest.raises(Exception) as error:
                    await client.read_resource(uri)
                found.append(f"{type(error.value).__name__} {error.value}")
        return found

    bare = await told(slow_server()), await told(Server("bare"))
    servers: list[Any] = [slow_server(), Server("bare")]
    probes = [attach(server, resources=True) for server in servers]
    try:
        assert (await told(servers[0]), await told(servers[1])) == bare
    finally:
        for probe in probes:
            probe.detach()


async def test_a_low_level_server_without_resources_has_ours_alone() -> None:
    server: Server[Any] = Server("bare")
    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            assert client.server_capabilities.resources is not None
            assert await uris_of(client) == OURS
            assert (await text_of(client, "probe://report")).startswith("bare · ")
    finally:
        probe.detach()


async def test_they_stand_on_the_last_page_only_and_pages_before_are_looked_at() -> None:
    pages = {None: (["note://one", "probe://findings"], "two"), "two": (["note://two"], None)}

    async def on_list(ctx: Any, params: Any) -> ListResourcesResult:
        uris, following = pages[params.cursor]
        return ListResourcesResult(resources=[Resource(uri=uri, name=uri) for uri in uris], next_cursor=following)

    async def on_read(ctx: Any, params: Any) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri=str(params.uri), text="own")])

    server: Server[Any] = Server("paged", on_list_resources=on_list, on_read_resource=on_read)
    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            first = await client.list_resources()
            assert [str(each.uri) for each in first.resources] == ["note://one", "probe://findings"]
            last = await client.list_resources(cursor="two")
            assert [str(each.uri) for each in last.resources] == ["note://two", "probe://report"]
            assert await text_of(client, "probe://findings") == "own"
            assert (await text_of(client, "probe://report")).startswith("paged · ")
    finally:
        probe.detach()


async def test_many_readers_share_one_rendering_and_the_loop_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, threads = [], set()
    go = threading.Event()

    def told(self: Any, kind: str) -> str:
        rendered.append(kind)
        threads.add(threading.get_ident())
        assert go.wait(60)
        return "said"

    monkeypatch.setattr("mcp_probe.session.Probe._told", told)
    server = slow_server()
    probe = attach(server, resources=True)
    try:
        async with Client(server) as client, anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.read_resource, "probe://report")
            while not rendered:
                await anyio.sleep(0.001)
            await client.call_tool("quick", {})  # while all of them wait
            go.set()
        assert rendered == ["report"]
        assert threading.get_ident() not in threads
    finally:
        probe.detach()


async def test_a_report_that_cannot_be_made_is_an_error_of_that_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, kind: str) -> str:
        raise ValueError("broken on purpose")

    monkeypatch.setattr("mcp_probe.session.Probe._told", broken)
    server = slow_server()
    probe = attach(server, resources=True)
    try:
        async with Client(server) as client:
            with pytest.raises(Exception):  # noqa: B017 - the SDK says an internal error
                await client.read_resource("probe://report")
            assert (await client.call_tool("quick", {})).is_error is not True
            assert await uris_of(client) == OURS
    finally:
        probe.detach()


@pytest.mark.parametrize(
    ("template", "fits"),
    [
        ("probe://{x}", True),
        ("{+path}", True),
        ("probe://report", True),
        ("note://{x}", False),
        ("probe://x{?q}", False),
    ],
)
async def test_a_template_fits_what_its_expressions_may_stand_for(template: str, fits: bool) -> None:
    assert _fits(template, "probe://report") is fits


# --- under `mcp-probe run`, on each SDK -------------------------------------------------------------------------------


@asynccontextmanager
async def session_of(python: str, arguments: list[str], json_file: Path, *options: str) -> Any:
    command = ["-m", "mcp_probe", "run", *options, "--output", os.devnull, "--json", str(json_file), "--", python]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    given = StdioServerParameters(command=sys.executable, args=[*command, str(SERVER), *arguments], env=environment)
    async with stdio_client(given) as streams, ClientSession(*streams) as session:
        yield session, await session.initialize()


def python_of(name: str, env_python: Callable[[str], Path]) -> str:
    return sys.executable if name == ".venv" else str(env_python(name))


SLOWER = [pytest.param(*each, marks=pytest.mark.endurance) for each in (
    ("cell-mcp1.6", "mcp1"), ("cell-mcp1.22", "mcp1"), ("fastmcp2", "fastmcp"), ("fastmcp3", "fastmcp"),
    ("fastmcp4", "fastmcp"),
)]  # fmt: skip


@pytest.mark.parametrize(("name", "which"), [(".venv", "mcp2"), ("mcp1", "mcp1"), *SLOWER])
async def test_an_agent_finds_the_fault_and_its_line_while_the_server_runs(
    name: str, which: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    written = tmp_path / "report.json"
    async with session_of(python_of(name, env_python), [which], written, "--resources") as (session, hello):
        assert hello.capabilities.resources is not None
        for _ in range(4):
            await session.call_tool("resize", {})
        before = (await session.call_tool("loaded", {})).content[0].text
        assert await uris_of(session) == OURS
        assert "resize" in await text_of(session, "probe://report")
        found = json.loads(await text_of(session, "probe://findings"))
        after = (await session.call_tool("loaded", {})).content[0].text
    faults = [each for each in found["findings"] if each["code"] in ("blocking-call", "cpu-bound-step")]
    places = {(Path(str(each["evidence"]["file"])).name, each["evidence"]["line"]) for each in faults}
    assert (SERVER.name, FAULT_LINE) in places
    assert after == before and "mcp_probe.aggregate.fold" not in after and "mcp_probe.report" not in after
    summary = json.loads(written.read_text())
    assert {row["name"]: row["count"] for row in summary["operations"]}["resize"] == 4
    assert "resources/read" not in {row["name"] for row in summary["operations"]}
    assert summary["probe"]["disabled_hooks"] == []


@pytest.mark.parametrize(("name", "which"), [("mcp1", "mcp1"), *SLOWER])
async def test_what_the_server_has_itself_stays_on_each_sdk(
    name: str, which: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = python_of(name, env_python)
    async with session_of(python, [which, "own"], tmp_path / "report.json", "--resources") as (session, _):
        assert await uris_of(session) == ["note://one", "probe://report", "probe://findings"]
        assert await text_of(session, "probe://report") == "the server's own"
        assert await text_of(session, "note://one") == "one"
        assert json.loads(await text_of(session, "probe://findings"))["server"]["name"] == "slow"


async def test_without_the_option_a_run_lists_nothing(env_python: Callable[[str], Path], tmp_path: Path) -> None:
    async with session_of(str(env_python("mcp1")), ["mcp1"], tmp_path / "report.json") as (session, _):
        assert await uris_of(session) == []
