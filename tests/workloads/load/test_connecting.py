"""Many clients of one server: who takes which turn, what the server counts, and what becomes of those it loses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.load import loops
from mcp_probe.workloads.load.connecting import Sessions, connect_all
from mcp_probe.workloads.load.page import page
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.running import LoadOptions, run_load
from mcp_probe.workloads.load.wire import Era, Order
from tests.workloads.load.raw import mix_of, raw_http, raw_target, tool
from tests.workloads.load.test_generator import Told

CALL = tool("count").order(0)


def test_sessions_take_turns_and_a_lost_one_takes_none() -> None:
    async def whole() -> tuple[list[Told], Sessions]:
        peers = [Told(lambda number: "ok") for _ in range(3)]
        many = Sessions([(peer, 5) for peer in peers])
        for _ in range(9):
            await many.post(CALL)
        peers[1].away = "it crashed"
        assert many.gone() == ""
        for _ in range(6):
            await many.post(CALL)
        return peers, many

    peers, many = loops.run(whole())
    assert [len(peer.sent) for peer in peers] == [6, 3, 6]
    assert (many.lost(), loops.run(many.last_words())) == (1, "it crashed")
    peers[0].away = peers[2].away = "they all did"
    assert many.gone() == "they all did"


def test_each_stdio_session_is_a_process_of_its_own() -> None:
    async def whole() -> list[dict[str, int]]:
        async with connect_all(raw_target(), 3) as peer:
            assert len(peer.connect_ns) == 3
            assert all(took > 0 for took in peer.connect_ns)
            replies = [await peer.post(CALL) for _ in range(6)]
        return [json.loads(reply.result["content"][0]["text"]) for reply in replies if reply.result]

    assert Counter(each["count"] for each in loops.run(whole())) == {1: 3, 2: 3}


@pytest.mark.parametrize(("era", "server"), [("legacy", "--legacy"), ("auto", "--legacy"), ("modern", "--modern")])
def test_each_http_session_has_its_own_id_and_its_own_connections(era: Era, server: str) -> None:
    """A server of the older protocol names a session that it does not know where it refuses the newer one."""
    with raw_http(server) as url:
        options = LoadOptions(sessions=5)
        result = run_load(Target(url=url, era=era), mix_of(tool("echo"), rate=500, count=50, seconds=None), options)
        seen = counts_of(url, era)
    assert result.open.fates["ok"] == 50
    assert result.start is not None
    assert (result.start.sessions, result.start.connect.n, result.start.lost) == (5, 5, 0)
    assert "5 sessions" in page(result, width=100, color=False)
    calls = sorted(count for count in seen["sessions"].values() if count)
    if server == "--legacy":
        assert calls == [1, 10, 10, 10, 10, 11]  # the one call before the load, and the one that asked for the counts
    else:
        assert calls == [52]  # no ids
    assert seen["most_open"] >= 5


def descriptors() -> int:
    """How many a process may have here; the load raises its own limit so far, and so does the server."""
    try:
        import resource
    except ImportError:
        return 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard


@pytest.mark.skipif(descriptors() < 1200, reason="a process may have too few file descriptors here")
def test_a_thousand_connections_are_open_at_once() -> None:
    """The server answers nobody until a thousand requests wait, which it can see on as many connections only."""
    with raw_http() as url:
        mix = mix_of(tool("hold", count=1000), rate=2000, count=1000, seconds=None, drain=60)
        result = run_load(Target(url=url), mix, LoadOptions(allow_failures=True, connections=1000))
        seen = counts_of(url)
    assert result.open.fates["ok"] == 1000, result.open.causes
    assert seen["most_open"] >= 1000
    assert not any("connections were open" in note for note in result.notes)
    assert result.open.outstanding_peak == 1000


def test_connections_are_limited_to_what_was_asked_for_over_all_sessions() -> None:
    with raw_http() as url:
        mix = mix_of(tool("hold", count=8), rate=1000, count=64, seconds=None, drain=60)
        result = run_load(Target(url=url), mix, LoadOptions(allow_failures=True, sessions=4, connections=8))
        seen = counts_of(url)
    assert result.open.fates["ok"] == 64
    assert 8 <= seen["most_open"] <= 9  # the ninth is the one that asks for the counts


def test_a_session_that_ends_leaves_the_load_to_the_others() -> None:
    """Each process ends at its 10th call; the load has no more than that for all three together."""
    mix = mix_of(tool("exit", at=10), rate=200, count=25, seconds=None)
    result = run_load(raw_target(), mix, LoadOptions(sessions=3, allow_failures=True))
    assert result.open.fates["ok"] == 25
    mix = mix_of(tool("exit", at=10), rate=200, count=200, seconds=None)
    result = run_load(raw_target(), mix, LoadOptions(sessions=3, allow_failures=True))
    assert result.open.fates["ok"] == 27
    assert result.start is not None
    assert result.start.lost == 3
    assert any("3 of 3 servers went away during the load" in note for note in result.notes)
    assert result.open.causes.get("the server ended", 0) == result.open.fates["transport error"]


def test_a_session_that_cannot_be_opened_is_named() -> None:
    async def whole() -> None:
        async with connect_all(Target(command=("no-such-program-here",)), 2):
            raise AssertionError("it should not have connected")

    with pytest.raises(LaunchError, match=r"Session 1 of 2: .*no-such-program-here"):
        loops.run(whole())


def test_sessions_that_were_open_are_stopped_when_one_fails(tmp_path: Path) -> None:
    """The second to come finds the mark of the first and ends; the first is told to end, and does."""
    mark = tmp_path / "mark"
    text = (
        f"import pathlib, sys\nmark = pathlib.Path({str(mark)!r})\n"
        "try:\n    mark.touch(exist_ok=False)\nexcept FileExistsError:\n    sys.exit('one is enough')\n"
    )
    script = tmp_path / "server.py"
    server = (
        Path(raw_target().command[1]).read_text(encoding="utf-8").replace("import json\n", f"import json\n{text}", 1)
    )
    script.write_text(server + f"    pathlib.Path({str(tmp_path / 'ended')!r}).touch()\n", encoding="utf-8")

    async def whole() -> None:
        async with connect_all(Target(command=(raw_target().command[0], str(script))), 2):
            raise AssertionError("it should not have connected")

    with pytest.raises(LaunchError, match=r"Session . of 2: .*one is enough"):
        loops.run(whole())
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize("options", [LoadOptions(sessions=0), LoadOptions(sessions=2, profile=True)])
def test_sessions_that_make_no_sense_are_refused(options: LoadOptions) -> None:
    with pytest.raises(OptionError, match="sessions"):
        run_load(raw_target(), mix_of(tool("echo")), options)


def counts_of(url: str, era: Era = "modern") -> dict[str, Any]:
    async def whole() -> dict[str, Any]:
        async with connect_all(Target(url=url, era=era), 1) as peer:
            reply = await asyncio.wait_for(peer.post(Order("tools/call", {"name": "counts", "arguments": {}})), 60)
        assert reply.result is not None, reply
        found: dict[str, Any] = json.loads(reply.result["content"][0]["text"])
        return found

    return loops.run(whole())
