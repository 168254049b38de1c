"""The lines of the live channel: what goes in comes out, and another version gets a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.errors import LiveError
from mcp_probe.live import wire
from mcp_probe.now import Detail, Line, Snapshot, TaskNow
from tests.live.snapshots import BLOCKED, DEADLOCK, make_request

DETAIL = Detail(make_request(), (TaskNow("handler", "suspended", 2.5, (Line("a.py", 3, "f", True),)),))


@pytest.mark.parametrize("snapshot", [DEADLOCK, BLOCKED])
def test_a_snapshot_arrives_as_it_was_sent(snapshot: Snapshot) -> None:
    line = wire.encoded("snapshot", snapshot)
    key, content = wire.decoded(line)
    assert line.count(b"\n") == 1
    assert (key, wire.built(Snapshot, content)) == ("snapshot", snapshot)


def test_a_detail_arrives_as_it_was_sent_and_none_as_none() -> None:
    assert wire.built(Detail, wire.decoded(wire.encoded("detail", DETAIL))[1]) == DETAIL
    assert wire.built(Detail, wire.decoded(wire.encoded("detail", None))[1]) is None


def test_a_slow_viewer_is_told_what_it_missed() -> None:
    line = wire.with_dropped(wire.encoded("snapshot", DEADLOCK), 7)
    assert wire.built(Snapshot, wire.decoded(line)[1]).dropped == 7


@pytest.mark.parametrize("line", [b"x", b"[]", b"{}", b'{"a":1,"b":2}', b"\xff"])
def test_what_is_no_line_of_ours_is_refused(line: bytes) -> None:
    with pytest.raises(LiveError, match="something else than mcp_probe's lines"):
        wire.decoded(line)


@pytest.mark.parametrize("damaged", [{}, {"server": 1}, {"server": None}])
def test_a_line_with_other_content_is_refused(damaged: Any) -> None:
    with pytest.raises(LiveError, match="is not what version 1 has there"):
        wire.built(Snapshot, damaged)


def test_a_server_of_another_version_is_named_with_what_to_do() -> None:
    hello = {"format": wire.FORMAT, "version": 7, "probe": "9.9", "pid": 12, "name": "notes"}
    with pytest.raises(LiveError, match=r"'notes' \(process 12\) runs mcp_probe 9\.9.*version 7.*from mcp_probe 9\.9"):
        wire.check_hello(hello)
    wire.check_hello({**hello, "version": wire.VERSION})


@pytest.mark.parametrize("hello", [None, 3, {}, {"format": "x"}])
def test_a_stranger_is_not_asked_for_anything(hello: Any) -> None:
    with pytest.raises(LiveError, match="Something else than an mcp_probe server"):
        wire.check_hello(hello)


@pytest.mark.parametrize("question", [None, {}, {"version": 2}, 3])
def test_a_viewer_of_another_version_gets_a_sentence(question: Any) -> None:
    assert "the viewer asks for version" in str(wire.complaint_about(question))
    assert wire.complaint_about({"version": wire.VERSION}) is None
