"""The protocol's bytes are the same with and without the probe, over real stdio."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.capture.messages import MAX_WRITE_WAITS
from mcp_probe.model import End, Header, RequestRecord
from mcp_probe.record.assemble import LATE_NS
from mcp_probe.record.file import read_recording
from tests.safety.conversation import (
    INITIALIZED,
    Conversation,
    call,
    initialize,
    key_of,
    notification,
    python,
    request,
)

BURST = 200
Script = Callable[[Conversation], None]


def odd_lines(talk: Conversation, modern: bool) -> None:
    """What is no request: the server answers some of it with an error and skips the rest."""
    talk.send(b"\n", b"   \n", b"{not json}\n", b"[]\n", b"null\n", b'"\xff\xfe\x80"\n', b"\xc3(\n", b"42\r\n")
    talk.send(b'{"jsonrpc":"2.0","id":900,"method":"tools/list"')  # cut in the middle of a line
    talk.send(b"}\n" if not modern else b"\n")
    talk.send(notification("notifications/nobody/knows", x=1), notification("notifications/progress", progress=1))
    talk.send({"jsonrpc": "2.0", "id": 77, "result": {}})  # an answer to nothing
    talk.send({"jsonrpc": "1.0", "id": 78, "method": "ping"})
    if not modern:
        talk.wait_for(900)


def requests_of_every_kind(talk: Conversation, modern: bool) -> None:
    def one(id: Any, method: str, **params: Any) -> Mapping[str, Any]:
        return request(id, method, modern=modern, **params)

    talk.send(
        call(10, "echo", modern=modern, text="hello"),
        call("eleven", "echo", modern=modern, text="\u00e9\u4e2d\U0001f600\u2028\r\n\t"),
        call(12, "in_thread", modern=modern, text="abc"),
        call(13, "fail", modern=modern, text="no"),
        call(14, "nobody_knows", modern=modern),
        call(15, "echo", modern=modern),
        call(16, "echo", modern=modern, text=["not", "text"]),
        one(17, "nobody/knows"),
        one(18, "tools/list"),
        one(19, "prompts/list"),
        one(20, "prompts/get", name="greet", arguments={"name": "you"}),
        one(21, "prompts/get", name="nobody_knows"),
        one(22, "resources/list"),
        one(23, "resources/templates/list"),
        one(24, "resources/read", uri="note://today"),
        one(25, "resources/read", uri="note://of/monday"),
        one(26, "resources/read", uri="note://nowhere/at/all"),
        one(27, "tools/call", name=5),
        one(28, "ping"),
        call(29, "print_to_stdout", modern=modern, text="this goes to stderr"),
        call(30, "children", modern=modern, number=5),
        call(31, "child_fails", modern=modern, text="it"),
        call(32, "gives_up_on_itself", modern=modern),
        one(33, "server/discover"),
        one(
            34, "completion/complete", ref={"type": "ref/prompt", "name": "greet"}, argument={"name": "n", "value": ""}
        ),
    )
    talk.wait_for(10, "eleven", *range(12, 35))


def progress(talk: Conversation, modern: bool) -> None:
    talk.send(call(50, "count", modern=modern, meta={"progressToken": "p"}, to=20))
    talk.wait_for(50)


def cancellation(talk: Conversation, modern: bool) -> None:
    talk.send(call(51, "hang", modern=modern, meta={"progressToken": "h"}))
    talk.wait_for_method("notifications/progress")
    talk.send(notification("notifications/cancelled", requestId=51, reason="enough"))
    talk.send(notification("notifications/cancelled", requestId="no such request"))
    talk.send(call(52, "echo", modern=modern, text="still here"))
    talk.wait_for(52)


def large_results(talk: Conversation, modern: bool) -> None:
    talk.send(*(call(id, "large", modern=modern, letter=letter) for id, letter in ((60, "x"), (61, "\u00e9"))))
    talk.send(call(62, "echo", modern=modern, text="y" * (1 << 20)))
    talk.wait_for(60, 61, 62)


def burst(talk: Conversation, modern: bool) -> None:
    tools = ("echo", "in_thread")
    talk.send(*(call(1000 + n, tools[n % 2], modern=modern, text=f"number {n}") for n in range(BURST)))
    talk.wait_for(*range(1000, 1000 + BURST))


def question_to_the_client(talk: Conversation) -> None:
    talk.send(call(70, "ask", question="how are you?"))
    asked = talk.wait_for_method("sampling/createMessage")
    answer = {"role": "assistant", "content": {"type": "text", "text": "fine"}, "model": "m", "stopReason": "endTurn"}
    talk.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    talk.wait_for(70)


def handshake_era(talk: Conversation) -> None:
    talk.send(call(1, "echo", text="too early"))
    talk.wait_for(1)
    talk.send(initialize(2, sampling={}), INITIALIZED)
    talk.wait_for(2)
    for part in (requests_of_every_kind, odd_lines, progress, cancellation, large_results, burst):
        part(talk, False)
    question_to_the_client(talk)
    talk.send(call(80, "echo", modern=True, text="of the other era"))
    talk.wait_for(80)
    talk.send(call(81, "hang", meta={"progressToken": "last"}))  # its answer is the shutdown's
    talk.wait_for_method("notifications/progress")


def modern_era(talk: Conversation) -> None:
    for part in (requests_of_every_kind, odd_lines, progress, cancellation, large_results, burst):
        part(talk, True)
    talk.send(call(70, "ask", modern=True, question="may I?"), call(80, "echo", text="without an envelope"))
    talk.send(initialize(82))
    talk.wait_for(70, 80, 82)
    talk.send(call(81, "hang", modern=True, meta={"progressToken": "last"}))
    talk.wait_for_method("notifications/progress")


ERAS = {"handshake": handshake_era, "modern": modern_era}
_bare: dict[str, list[bytes]] = {}


def hold(command: Sequence[str], script: Script, **environment: str) -> Conversation:
    with Conversation(command, environment) as talk:
        script(talk)
    assert talk.exit_code == 0, talk.stderr.decode()
    assert b"served\n" in talk.stderr
    return talk


def bare(era: str) -> list[bytes]:
    """What the server writes without a probe, on asyncio."""
    if era not in _bare:
        _bare[era] = hold(python("everything_server.py", "asyncio"), ERAS[era]).lines
    return _bare[era]


def progress_of(lines: Sequence[bytes]) -> list[bytes]:
    """The notifications, whose order counts; concurrent answers may overtake each other."""
    return [line for line in lines if key_of(line).startswith("notifications/progress")]


def assert_same_bytes(lines: Sequence[bytes], expected: Sequence[bytes]) -> None:
    missing, added = Counter(expected) - Counter(lines), Counter(lines) - Counter(expected)
    assert ([line[:200] for line in missing], [line[:200] for line in added]) == ([], [])
    assert progress_of(lines) == progress_of(expected)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("era", ERAS)
def test_attached_server_writes_the_same_bytes_and_records_every_request(era: str, loop: str, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    talk = hold(python("everything_server.py", loop, "attach"), ERAS[era], MCP_PROBE_RECORD=str(recording))
    assert_same_bytes(talk.lines, bare(era))
    frames = list(read_recording(recording))
    assert isinstance(frames[-1], End)
    requests = [frame for frame in frames if isinstance(frame, RequestRecord) and frame.kind == "request"]
    assert_every_request_is_there(talk, requests)
    assert_hooks_are_active([frame for frame in frames if isinstance(frame, Header)][-1], loop)


def assert_every_request_is_there(talk: Conversation, requests: Sequence[RequestRecord]) -> None:
    answers = [message for line in talk.lines if "method" not in (message := json.loads(line))]
    assert len(requests) == len(answers) + 1, "one was cancelled by its client, and is not answered"
    failed = [answer for answer in answers if "error" in answer]
    codes = Counter(str(answer["error"]["code"]) for answer in failed)
    assert Counter(record.error for record in requests if record.outcome == "error") == codes
    of = {name: Counter(r.outcome for r in requests if (r.name or r.method) == name) for name in OUTCOMES}
    assert {name: dict(counts) for name, counts in of.items()} == OUTCOMES
    for record in requests:
        assert record.transport == "stdio"
        # Where turns of the loop take more than 1 ms, an answer behind a hundred others waits for more than are kept.
        assert not record.partial or (record.budget.write_wait or 0) > MAX_WRITE_WAITS * LATE_NS
        assert record.budget.queue_transport is not None and record.budget.queue_dispatch is not None
        if record.outcome != "cancelled":
            assert record.budget.write_wait is not None and record.budget.write_flush is not None
            assert record.response_bytes is not None
    assert max(record.response_bytes or 0 for record in requests) > 1 << 20


OUTCOMES = {
    "fail": {"tool_error": 1},
    "nobody_knows": {"tool_error": 1, "error": 1},
    "large": {"ok": 2},
    "count": {"ok": 1},
    "hang": {"cancelled": 1, "error": 1},
    "child_fails": {"tool_error": 1},
    "gives_up_on_itself": {"ok": 1},
    "print_to_stdout": {"ok": 1},
    "greet": {"ok": 1},
    "in_thread": {"ok": BURST // 2 + 1},
}


def assert_hooks_are_active(header: Header, loop: str) -> None:
    off = {
        name: state
        for name, state in header.hooks
        if state != "active" and not (name == "memory" and state.startswith("active"))
    }
    assert set(off) == ({"loop polls"} if loop == "uvloop" else set()), off
    assert (header.server, header.sdk, header.transport, header.loop) == ("everything", "mcp", "stdio", loop)


def test_detached_server_writes_the_same_bytes() -> None:
    talk = hold(python("everything_server.py", "asyncio", "detached"), ERAS["modern"])
    assert_same_bytes(talk.lines, bare("modern"))


@pytest.mark.parametrize("era", ERAS)
def test_server_under_mcp_probe_run_writes_the_same_bytes(era: str) -> None:
    command = [sys.executable, "-m", "mcp_probe", "run", "--", *python("everything_server.py", "asyncio")]
    talk = hold(command, ERAS[era])
    assert_same_bytes(talk.lines, bare(era))


def test_the_conversations_reach_every_kind_of_answer() -> None:
    lines = bare("handshake")
    assert len(progress_of(lines)) == 22
    assert len(lines) > BURST + 40
    assert max(map(len, lines)) > 1 << 20
    written = b"".join(lines)
    for sign in (b'"isError":true', b'"code":-32601', b'"code":-32602', b'"method":"sampling/createMessage"'):
        assert sign in written, sign
