"""Calls of backends, and what users let be seen of their names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mcp_probe
from mcp_probe.capture.outbound import REDACTED
from mcp_probe.model import Await, AwaitKind
from mcp_probe.session import Probe
from tests.kept import Kept, keep

HOST = "https://tenant-7.example.com:443"


def only_the_domain(kind: str, value: Any) -> Any:
    return f"{kind}: {value.partition('.')[2]}"


def broken(kind: str, value: Any) -> Any:
    raise RuntimeError(f"no {value}")


def called(kind: AwaitKind, name: str, **options: Any) -> tuple[Await, Kept]:
    """One profiled call of a backend, and everything that was kept of it."""
    probe = Probe(wait_ms=0.5, **options)
    kept = keep(probe)

    @probe.profile
    async def call() -> None:
        outbound = probe._hub.outbound
        begun = outbound.begin(kind, name, calls=1)
        await asyncio.sleep(0.02)
        outbound.end(begun)

    try:
        asyncio.run(call())
    finally:
        probe.detach()
    (record,) = kept.requests(kind="function")
    assert record.awaits is not None
    (found,) = [one for one in record.awaits if one.kind == kind]
    return found, kept


def test_a_backend_is_named_as_it_is_where_nobody_redacts() -> None:
    assert called("http", HOST)[0].object == HOST


@pytest.mark.parametrize(("kind", "word"), [("http", "host"), ("db", "host"), ("subprocess", "program")])
def test_redact_gets_kind_and_name_and_only_its_answer_is_kept(kind: AwaitKind, word: str) -> None:
    found, kept = called(kind, HOST, redact=only_the_domain)
    assert found.object == f"{word}: example.com:443"
    assert "tenant-7" not in repr(kept.frames)


@pytest.mark.parametrize("redact", [broken, lambda kind, value: None, lambda kind, value: 7])
def test_what_redact_does_not_answer_with_a_name_is_left_out(
    redact: Callable[[str, Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mcp_probe"):
        found, kept = called("http", HOST, redact=redact)
    assert found.object == REDACTED
    assert "tenant-7" not in repr(kept.frames) + caplog.text
    assert len(caplog.records) == (redact is broken)


def test_of_two_probes_each_may_withhold_a_name() -> None:
    first, second = Probe(redact=only_the_domain), Probe(redact=lambda kind, value: value.upper())
    try:
        outbound = first._hub.outbound
        assert outbound.shown("http", HOST) == "HOST: EXAMPLE.COM:443"
        second.detach()
        assert outbound.shown("http", HOST) == "host: example.com:443"
    finally:
        second.detach()
        first.detach()


# --- the off switch ---


@pytest.fixture
def off() -> Iterator[Probe]:
    probe = Probe(awaits=False)
    yield probe
    probe.detach()


def test_without_awaits_nothing_is_hooked_nobody_looks_and_nothing_is_claimed(off: Probe) -> None:
    kept = keep(off)
    original = asyncio.Lock.acquire

    @off.profile
    async def call() -> None:
        lock = asyncio.Lock()
        assert type(lock).acquire is original
        async with lock:
            await asyncio.sleep(0.02)
        assert off._hub.looks._worker is None

    asyncio.run(call())
    summary = off.snapshot()
    off.detach()
    (record,) = kept.requests(kind="function")
    assert record.awaits is None
    assert not [hook for hook, _ in kept.header().hooks if hook.startswith("awaits")]
    (row,) = summary.operations
    assert (row.awaits, row.awaits_unnamed_ms) == ((), None)
    assert summary.probe.awaits == "off"


def test_a_second_probe_that_wants_awaits_gets_them(off: Probe) -> None:
    original = asyncio.Lock.acquire
    second = mcp_probe.Probe()
    try:
        assert asyncio.Lock.acquire is not original
        assert off._hub.awaits.active
    finally:
        second.detach()
    off.detach()
    assert asyncio.Lock.acquire is original


def test_a_probe_on_a_running_loop_that_is_followed_already_gets_looks() -> None:
    async def run() -> tuple[bool, bool]:
        first = Probe(awaits=False)
        first._hooks.loops.follow()
        looks = first._hub.looks
        before = looks._worker is not None
        second = Probe()
        try:
            return before, looks._worker is not None
        finally:
            second.detach()
            first.detach()

    assert asyncio.run(run()) == (False, True)
