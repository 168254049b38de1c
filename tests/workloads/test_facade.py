"""The threaded client and its facade: answers find their callers, failures are said, and the pool is the limit."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.facade import Facade, ThreadedClient

# Answers calls in pairs, the later one first; "die" ends it, "fail" is a JSON-RPC error, "bad" an error of the tool.
PEER = r"""
import json, sys
held = []
def send(number, **more):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **more}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        send(message["id"], result={})
        continue
    name = message["params"]["name"]
    if name == "die":
        sys.exit(3)
    if name == "fail":
        send(message["id"], error={"code": -32602, "message": "no such thing"})
    elif name == "bad":
        send(message["id"], result={"isError": True, "content": [{"type": "text", "text": "it broke"}]})
    elif name == "mute":
        pass
    else:
        held.append((message["id"], message["params"]["arguments"]))
        if len(held) == 2:
            for number, arguments in reversed(held):
                send(number, result={"content": arguments})
            held.clear()
"""


@contextmanager
def peer(timeout_s: float = 60.0) -> Iterator[ThreadedClient]:
    client = ThreadedClient([sys.executable, "-c", PEER], timeout_s=timeout_s)
    try:
        yield client
    finally:
        client.close()


def test_answers_in_another_order_reach_the_callers_they_belong_to() -> None:
    with peer() as client, ThreadPoolExecutor(2) as threads:
        both = [threads.submit(client.call, "echo", {"number": number}) for number in range(2)]
        assert [answer.result(60)["content"] for answer in both] == [{"number": 0}, {"number": 1}]


def test_a_server_that_dies_fails_every_caller_with_a_sentence() -> None:
    with peer() as client, ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(client.call, "mute", {})
        with pytest.raises(LaunchError, match=r"ended before it had answered|no longer reads"):
            client.call("die", {})
        with pytest.raises(LaunchError, match=r"ended before it had answered|no longer reads"):
            waiting.result(60)
        with pytest.raises(LaunchError):
            client.call("echo", {})


@pytest.mark.parametrize(("tool", "said"), [("fail", "no such thing"), ("bad", "it broke")])
def test_an_error_is_raised_with_what_the_server_said(tool: str, said: str) -> None:
    with peer() as client, pytest.raises(LaunchError, match=said):
        client.call(tool, {})


def test_a_call_that_is_not_answered_ends_after_the_time_it_was_given() -> None:
    with peer() as client:
        client._timeout_s = 0.05
        with pytest.raises(LaunchError, match=r"not answered within 0\.05 s"):
            client.call("mute", {})


def test_a_command_that_cannot_be_started_is_named() -> None:
    with pytest.raises(LaunchError, match="no-such-program could not be started"):
        ThreadedClient(["no-such-program"])


def test_a_process_that_speaks_no_json_is_no_server() -> None:
    with pytest.raises(LaunchError, match=r"cannot be read|ended before|no longer reads"):
        ThreadedClient([sys.executable, "-c", "print('hello')"])


class Blocked:
    """In place of a client: every call waits until all that can be there are."""

    def __init__(self, expected: int) -> None:
        self._full = threading.Barrier(expected)
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self._full.wait(60)
        with self._lock:
            self._inside -= 1
        return {"tool": tool, **arguments}


async def test_the_pool_lets_as_many_calls_through_as_it_has_threads() -> None:
    client = Blocked(4)
    facade = Facade(cast(ThreadedClient, client), 4)
    try:
        answers = await asyncio.gather(*(facade.invoke("wait", number=number) for number in range(20)))
    finally:
        facade.close()
    assert client.most == 4
    assert json.dumps(answers[19]) == '{"tool": "wait", "number": 19}'
