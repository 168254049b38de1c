"""Last words to streams that are read, closed, or full."""

from __future__ import annotations

import os

import pytest

from mcp_probe.report.deliver import deliver


def test_text_arrives_whole_where_somebody_reads() -> None:
    reader, writer = os.pipe()
    assert deliver("wörds\n", writer, 20)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == "wörds\n".encode()


def test_a_full_pipe_is_given_up() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    os.set_blocking(writer, True)
    assert not deliver("words", writer, 0.01)
    os.read(reader, 65536)  # lets the writer's thread go
    os.close(reader)
    os.close(writer)


def test_a_closed_stream_is_given_up_at_once() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert not deliver("words", writer, 20)
    os.close(writer)
