"""Last words to streams that are read, closed, or full."""

from __future__ import annotations

import os
import threading

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
    assert os.get_blocking(writer), "it is shared with whoever else writes there"
    os.close(reader)
    os.close(writer)


def test_a_pipe_that_fills_up_midway_is_given_up_with_the_beginning_written() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    text = "x" * 1_000_000
    assert not deliver(text, writer, 0.01)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        taken = stream.read()
    assert 0 < len(taken) < len(text)


def test_no_thread_is_needed_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.12 starts none while it ends."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    reader, writer = os.pipe()
    assert deliver("words", writer, 20)
    assert os.read(reader, 100) == b"words"
    os.close(reader)
    os.close(writer)


def test_a_closed_stream_is_given_up_at_once() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert not deliver("words", writer, 20)
    os.close(writer)
