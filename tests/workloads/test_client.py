"""The load client against the demo's server over real stdio: order of answers, limits, failures."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp import MCPError

from mcp_probe.workloads.client import Answer, Call, LoadSession, stdio_client_session

SERVER = [sys.executable, "-m", "mcp_probe.workloads.demo_server"]
FETCH = Call("fetch", {"url": "https://example.com/"})
LOOKUP = Call("lookup", {"item": "item-1"})


@asynccontextmanager
async def demo_session() -> AsyncIterator[LoadSession]:
    async with stdio_client_session(SERVER) as session:
        yield session


def most_in_flight(answers: list[Answer]) -> int:
    """Largest number of calls that were sent and not yet answered at one instant."""
    return max(sum(a.sent_ns <= at.sent_ns < a.answered_ns for a in answers) for at in answers)


async def test_one_by_one_sends_each_call_after_the_answer_before_it() -> None:
    async with demo_session() as session:
        answers = await session.one_by_one([LOOKUP] * 5)
    assert [a.text for a in answers] == ["107"] * 5
    assert most_in_flight(answers) == 1


async def test_pipelined_calls_do_not_wait_for_answers_and_come_back_in_the_order_asked() -> None:
    async with demo_session() as session:
        answers, kept = [], []
        for _ in range(4):  # a lookup that waited for the fetch before it would never pass it
            seen = len(session.answers)
            answers = await session.pipelined([FETCH, LOOKUP, FETCH])
            kept = session.answers[seen:]
            if kept[0].operation == "lookup":
                break
    assert [a.operation for a in answers] == ["fetch", "lookup", "fetch"]
    assert [a.operation for a in kept] == ["lookup", "fetch", "fetch"]
    assert most_in_flight(answers) == 3


async def test_pipelined_keeps_to_the_limit_in_flight() -> None:
    async with demo_session() as session:
        answers = await session.pipelined([FETCH] * 6, in_flight=2)
    assert len(answers) == 6
    assert most_in_flight(answers) == 2


async def test_a_failing_tool_is_an_answer_with_its_error() -> None:
    async with demo_session() as session:
        failed = await session.call("lookup", item="no such item")
        unknown = await session.call("no such tool")
    assert failed.error is not None and "lookup" in failed.error
    assert unknown.error is not None and "no such tool" in unknown.error
    assert failed.total_ms > 0


async def test_ping_is_answered_in_the_handshake_era_only() -> None:
    async with stdio_client_session(SERVER, mode="legacy") as session:
        assert (await session.ping()).operation == "ping"
    async with demo_session() as session:
        with pytest.raises(MCPError):
            await session.ping()


async def test_a_command_that_does_not_exist_is_an_os_error() -> None:
    with pytest.raises(OSError):
        async with stdio_client_session(["no-such-command-anywhere"]):
            pytest.fail("a session came from a command that does not exist")


async def test_the_server_gets_the_extra_environment_and_the_given_stderr(tmp_path: object) -> None:
    script = "import os, sys; sys.exit('heard ' + os.environ['LOAD_CLIENT_TEST'])"
    with open(f"{tmp_path}/stderr", "w+") as stderr:
        with pytest.raises(MCPError):
            async with stdio_client_session(
                [sys.executable, "-c", script], environment={"LOAD_CLIENT_TEST": "a word"}, stderr=stderr
            ):
                pytest.fail("a session came from a server that ended at once")
        stderr.seek(0)
        assert "heard a word" in stderr.read()
