"""Handshakes with servers that are old, new, slow or none; each answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.load import handshake, loops
from mcp_probe.workloads.load.handshake import shake_hands
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.wire import LEGACY, MODERN, Order, Reply

TARGET = Target(command=("server",))
DISCOVERED = Reply(0, 0, "ok", result={"supportedVersions": [MODERN], "capabilities": {"tools": {}}})
INITIALIZED = Reply(0, 0, "ok", result={"protocolVersion": LEGACY, "serverInfo": {"name": "old", "version": "1"}})
REFUSED = Reply(0, 0, "protocol error", "no such method")


class SlowPeer:
    """Answers ``answers[method]`` once as many requests have been sent as that says; what is not named, never."""

    def __init__(self, answers: Mapping[str, tuple[int, Reply]], heard: str = "") -> None:
        self.modern = True
        self.protocol = ""
        self.server = ""
        self.capabilities: Mapping[str, Any] = {}
        self.sent: list[str] = []
        self._answers = answers
        self._heard = heard
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    def post(self, order: Order) -> asyncio.Future[Reply]:
        self.sent.append(order.method)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[order.method] = future
        for method, (after, reply) in self._answers.items():
            if len(self.sent) >= after and method in self._waiting and not self._waiting[method].done():
                self._waiting[method].set_result(reply)
        return future

    async def notify(self, order: Order) -> None:
        self.sent.append(order.method)

    def gone(self) -> str:
        return ""

    async def last_words(self) -> str:
        return ""

    def heard(self) -> str:
        return self._heard


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "PATIENCE_S", 0.0)


def agreed(peer: SlowPeer, target: Target = TARGET) -> SlowPeer:
    loops.run(shake_hands(peer, target))
    return peer


def test_an_answer_to_discover_that_comes_late_is_an_answer() -> None:
    peer = agreed(SlowPeer({"server/discover": (2, DISCOVERED)}))
    assert peer.sent == ["server/discover", "initialize"]
    assert (peer.modern, peer.protocol, dict(peer.capabilities)) == (True, MODERN, {"tools": {}})


def test_a_refused_initialize_is_no_proof_while_discover_may_still_be_answered() -> None:
    async def later() -> SlowPeer:
        peer = SlowPeer({"initialize": (2, REFUSED)})
        shaking = asyncio.ensure_future(shake_hands(peer, TARGET))
        while "initialize" not in peer.sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not shaking.done()
        peer._waiting["server/discover"].set_result(DISCOVERED)
        await shaking
        return peer

    peer = loops.run(later())
    assert (peer.modern, peer.protocol) == (True, MODERN)


def test_a_slow_server_that_answers_both_is_spoken_to_in_the_newer_protocol() -> None:
    peer = agreed(SlowPeer({"initialize": (2, INITIALIZED), "server/discover": (2, DISCOVERED)}))
    assert (peer.modern, peer.protocol) == (True, MODERN)
    assert "notifications/initialized" not in peer.sent


def test_an_old_server_that_never_answers_discover_is_spoken_to_in_the_older_protocol() -> None:
    peer = agreed(SlowPeer({"initialize": (2, INITIALIZED)}))
    assert (peer.modern, peer.protocol, peer.server) == (False, LEGACY, "old 1")
    assert peer.sent == ["server/discover", "initialize", "notifications/initialized"]


def test_an_old_server_that_refuses_discover_late_is_waited_for() -> None:
    async def later() -> SlowPeer:
        peer = SlowPeer({"server/discover": (2, REFUSED)})
        shaking = asyncio.ensure_future(shake_hands(peer, TARGET))
        while "initialize" not in peer.sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        peer._waiting["initialize"].set_result(INITIALIZED)
        await shaking
        return peer

    assert loops.run(later()).protocol == LEGACY


def test_a_server_that_refuses_both_is_none() -> None:
    with pytest.raises(LaunchError, match="is not an MCP server that can be talked to over stdio: no such method"):
        agreed(SlowPeer({"server/discover": (1, REFUSED), "initialize": (2, REFUSED)}))


def test_a_server_that_is_late_is_not_called_something_else() -> None:
    target = Target(command=("server",), start_s=0.01)
    with pytest.raises(LaunchError) as caught:
        agreed(SlowPeer({}, heard="loading the model"), target)
    said = str(caught.value)
    assert said.startswith("server has not answered 0.01 s after its start; it said: loading the model.")
    assert "--start-timeout" in said
    assert "not an MCP server" not in said


def test_a_url_at_which_nobody_listens_is_tried_again_if_it_was_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_AGAIN_S", 0.0)
    nobody = Reply(0, 0, "transport error", "nobody listens at http://here/mcp")

    class Starting(SlowPeer):
        def post(self, order: Order) -> asyncio.Future[Reply]:
            future = super().post(order)
            if not future.done():
                future.set_result(DISCOVERED if len(self.sent) > 4 and order.method != "initialize" else nobody)
            return future

    peer = agreed(Starting({}), Target(url="http://here/mcp", start_s=60))
    assert (peer.modern, peer.sent.count("server/discover")) == (True, 3)
    with pytest.raises(LaunchError, match="nobody listens"):
        agreed(Starting({}), Target(url="http://here/mcp"))


def test_how_long_a_server_has_been_starting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "TELL_S", 0.001)
    told: list[str] = []
    with pytest.raises(LaunchError):
        loops.run(shake_hands(SlowPeer({}, heard="half way"), Target(command=("server",), start_s=0.4), told.append))
    assert told
    assert told[-1].startswith("waiting for the server's first answer, 0 s of 0.4 s; it said last: half way")
