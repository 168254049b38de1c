"""The stdio peer against the raw server: answers, noise, requests of the server's, and every way in which it can go."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.load.peer import Peer, Target, command_of, listed, names
from mcp_probe.workloads.load.wire import Reply, text_of
from tests.workloads.load.raw import SERVER, raw_target, talk, tool


async def reply_of(peer: Peer, name: str) -> Reply:
    return await peer.post(tool(name).order(0))


def test_both_eras_are_spoken() -> None:
    async def conversation(peer: Peer) -> tuple[str, str, list[str], str]:
        tools = names(await listed(peer, "tools"))
        counted = await reply_of(peer, "count")
        return peer.protocol, peer.server, tools, json.dumps(counted.result)

    modern = talk(raw_target(), conversation)
    legacy = talk(raw_target("--legacy"), conversation)
    assert modern[:2] == ("2026-07-28", "raw")
    assert legacy[:2] == ("2025-06-18", "raw")
    assert "echo" in modern[2]
    assert "notifications/initialized" in legacy[3]
    assert "notifications/initialized" not in modern[3]


def test_an_era_that_the_server_does_not_speak_is_refused() -> None:
    async def nothing(peer: Peer) -> None:
        raise AssertionError("it should not have connected")

    with pytest.raises(LaunchError, match=r"no server/discover"):
        talk(Target(command=raw_target("--legacy").command, era="modern"), nothing)


def test_each_kind_of_answer_is_told_apart() -> None:
    async def conversation(peer: Peer) -> list[tuple[str, str]]:
        replies = [await reply_of(peer, name) for name in ("echo", "refuse", "error")]
        return [(reply.kind, reply.failure) for reply in replies]

    assert talk(raw_target(), conversation) == [
        ("ok", ""),
        ("tool error", "no such item"),
        ("protocol error", "broken (code -32603)"),
    ]


def test_answers_of_a_megabyte_come_whole() -> None:
    async def conversation(peer: Peer) -> tuple[str, int]:
        big, _ = await asyncio.gather(peer.post(tool("big", size=1_000_000).order(0)), peer.post(tool("echo").order(0)))
        return big.kind, len(text_of(big.result or {}))

    kind, size = talk(raw_target(), conversation)
    assert kind == "ok"
    assert size == 1_000_000


def test_a_ping_of_the_server_is_answered_and_noise_is_passed_over() -> None:
    async def conversation(peer: Peer) -> tuple[Reply, Reply]:
        return await reply_of(peer, "ask"), await reply_of(peer, "noise")

    asked, noisy = talk(raw_target(), conversation)
    assert asked.result is not None
    assert asked.result["content"][0]["text"] == "{}"
    assert noisy.kind == "ok"


def test_a_request_that_is_given_up_is_cancelled_at_the_server() -> None:
    async def conversation(peer: Peer) -> str:
        future = peer.post(tool("never").order(0))
        await asyncio.sleep(0)
        future.cancel()
        await asyncio.sleep(0)
        counted = await reply_of(peer, "count")
        assert counted.result is not None
        text: str = counted.result["content"][0]["text"]
        return text

    assert json.loads(talk(raw_target(), conversation))["notifications/cancelled"] == 1


def test_a_server_that_ends_fails_what_was_in_flight_and_what_comes_after() -> None:
    async def conversation(peer: Peer) -> tuple[list[Reply], Reply, str]:
        pair = await asyncio.gather(peer.post(tool("exit").order(0)), peer.post(tool("echo").order(0)))
        while "exit code" not in peer.gone():
            await asyncio.sleep(0.01)
        return list(pair), await reply_of(peer, "echo"), peer.gone()

    pair, after, gone = talk(raw_target(), conversation)
    assert {reply.kind for reply in (*pair, after)} == {"transport error"}
    assert "exit code 3" in gone
    assert "no more of this" in gone


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((str(SERVER.with_name("no-such-program")),), "does not start"),
        ((sys.executable, "-c", "import sys; sys.exit('not today')"), "not today"),
        ((sys.executable, "-c", "print('Hello!')"), "its stdout began with: Hello!"),
    ],
)
def test_what_is_no_server_is_refused_in_a_sentence(command: tuple[str, ...], said: str) -> None:
    async def nothing(peer: Peer) -> None:
        raise AssertionError("it should not have connected")

    with pytest.raises(LaunchError) as caught:
        talk(Target(command=command), nothing)
    assert said in str(caught.value)


def test_no_process_is_left_behind_by_a_server_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_probe.workloads.load.stdio._CLOSING_S", 0.1)
    stubborn = (
        "import signal, runpy, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"runpy.run_path({str(SERVER)!r}, run_name='__main__'); time.sleep(600)"
    )

    async def conversation(peer: Peer) -> int:
        assert (await reply_of(peer, "echo")).kind == "ok"
        assert peer.pid is not None
        return peer.pid

    pid = talk(Target(command=(sys.executable, "-c", stubborn)), conversation)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_stderr_is_kept_where_it_was_asked_for(tmp_path: Path) -> None:
    async def conversation(peer: Peer) -> Reply:
        return await reply_of(peer, "exit")

    talk(Target(command=raw_target().command, stderr=tmp_path / "err.txt"), conversation)
    assert (tmp_path / "err.txt").read_text() == "no more of this\n"
    with pytest.raises(OptionError, match="Cannot write"):
        talk(Target(command=raw_target().command, stderr=tmp_path / "missing" / "err.txt"), conversation)


@pytest.mark.parametrize("text", ["", "  ", "python 'server.py"])
def test_a_command_must_be_one(text: str) -> None:
    with pytest.raises(OptionError, match="command"):
        command_of(text)


@pytest.mark.parametrize("given", [{}, {"command": ("a",), "url": "http://b"}, {"url": "localhost:8000"}])
def test_a_target_is_a_command_or_a_url(given: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Target(**given)  # type: ignore[arg-type]
