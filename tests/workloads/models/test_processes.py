"""The programs of one model each, run as they are in a comparison; and what is read off them from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.models.clients import ASYNC_LIBRARIES, SYNC_LIBRARIES, installed
from mcp_probe.workloads.models.io import cause_of
from mcp_probe.workloads.models.model_process import (
    ModelRun,
    Sample,
    ask_model,
    environment_without_proxies,
    explain_model,
    run_model,
)
from mcp_probe.workloads.models.urls import expected_bytes, paths
from mcp_probe.workloads.servers.delay_http import DelayServer, answer_bytes, delay_server

pytestmark = pytest.mark.workloads

CPU, IO = "mcp_probe.workloads.models.cpu", "mcp_probe.workloads.models.io"
MS = 1_000_000


# --- CPU-bound ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "threads"), [("sync", 1), ("await", 1), ("gather", 1), ("threads", 3)])
def test_every_cpu_model_counts_to_the_byte(model: str, threads: int) -> None:
    run = anyio.run(run_model, CPU, "--model", model, "--urls", 300, "--threads", threads)
    assert run.said["bytes"] == expected_bytes(300, threads)
    assert run.seconds > 0
    assert run.cpu_seconds > 0


def test_asyncio_takes_its_memory_when_it_is_imported() -> None:
    said = anyio.run(ask_model, CPU, "--model", "import")
    assert said["before_bytes"] + 1_000_000 < said["imported_bytes"]
    assert said["running_bytes"] - said["imported_bytes"] < said["imported_bytes"] - said["before_bytes"]


@pytest.mark.parametrize("model", ["sync", "gather", "threads"])
def test_a_cpu_model_explains_itself_under_a_probe(model: str) -> None:
    seen, sentence = anyio.run(explain_model, CPU, "--model", model, "--urls", 3000, "--threads", 3)
    assert {each.method for each in seen.requests} == {"encode"}
    assert len(seen.requests) == (1 if model == "sync" else 3)
    assert sentence.endswith(".")


# --- I/O-bound ------------------------------------------------------------------------------------


def fetch(server: DelayServer, model: str, urls: int, **more: int | bool) -> tuple[ModelRun, Any]:
    """One run of the I/O program, and what the server saw of it."""
    library = installed(SYNC_LIBRARIES if model in ("sync", "threads") else ASYNC_LIBRARIES)[0]
    options: list[object] = []
    for name, value in more.items():
        options += [f"--{name}"] if value is True else [f"--{name}", value]
    server.seen()
    arguments = ["--model", model, "--url", server.url, "--urls", urls, "--library", library, *options]
    run = anyio.run(run_model, IO, *arguments)
    return run, server.seen()


@pytest.fixture(scope="module")
def server() -> Any:
    with delay_server(10) as running:
        yield running


@pytest.mark.parametrize(
    ("model", "most", "more"),
    [
        ("sync", 1, {}),
        ("gather", 8, {"limit": 8}),
        ("workers", 8, {"limit": 8}),
        ("threads", 8, {"threads": 8}),
        ("hybrid", 8, {"threads": 4, "limit": 8}),
    ],
)
def test_every_io_model_writes_to_the_byte_and_keeps_to_its_concurrency(
    server: DelayServer, model: str, most: int, more: dict[str, int]
) -> None:
    run, seen = fetch(server, model, 40, **more)
    assert run.said["failures"] == {}
    assert run.said["written_bytes"] == sum(answer_bytes(path) for path in paths(40))
    assert seen.requests == run.said["urls"] == 40
    assert 1 <= seen.in_flight_peak <= most


def test_requests_to_nobody_fail_and_say_of_what(server: DelayServer) -> None:
    with delay_server(0) as gone:
        pass
    for model in ("sync", "gather"):
        run, _ = fetch_from(gone.url, model)
        assert run.said["failures"] == {"ECONNREFUSED": 5}
        assert run.said["written_bytes"] == 0


def fetch_from(url: str, model: str) -> tuple[ModelRun, None]:
    library = installed(SYNC_LIBRARIES if model == "sync" else ASYNC_LIBRARIES)[0]
    return anyio.run(run_model, IO, "--model", model, "--url", url, "--urls", 5, "--library", library), None


def test_loops_in_threads_fail_exactly_where_their_files_do_not_suffice(server: DelayServer) -> None:
    """All loops are made before any is used, so the limit alone says how many cannot be."""
    threads, limit = 60, 120
    few, _ = fetch(server, "hybrid", 2 * threads, threads=threads, limit=threads, together=True, descriptors=limit)
    assert set(few.said["failures"]) == {"EMFILE"}
    assert few.said["without_loop"] >= threads - limit // 3
    assert few.said["without_loop"] * 2 <= sum(few.said["failures"].values())
    enough, seen = fetch(server, "hybrid", 2 * threads, threads=threads, limit=threads, together=True)
    if enough.said["descriptors"] < 4 * threads + 100:
        pytest.skip("this process may not open enough files for the other half")
    assert enough.said["failures"] == {}
    assert enough.said["without_loop"] == 0
    assert seen.requests == 2 * threads


@pytest.mark.parametrize("model", ["sync", "gather", "threads", "hybrid"])
def test_an_io_model_explains_itself_under_a_probe(server: DelayServer, model: str) -> None:
    library = installed(SYNC_LIBRARIES if model in ("sync", "threads") else ASYNC_LIBRARIES)[0]
    arguments = ["--model", model, "--url", server.url, "--urls", 12, "--library", library, "--threads", 3]
    seen, sentence = anyio.run(explain_model, IO, *arguments, "--limit", 6)
    assert [each.method for each in seen.requests] == ["fetch"] * 12
    assert sentence.endswith(".")


def test_a_cause_is_looked_for_below_what_a_library_raises() -> None:
    def raised() -> BaseException:
        try:
            try:
                raise OSError(24, "Too many open files")
            except OSError as inner:
                raise RuntimeError("connection failed") from inner
        except RuntimeError as outer:
            return outer

    assert cause_of(raised()) == "EMFILE"
    assert cause_of(ConnectionError("<urllib3: [Errno 24] Too many open files>")) == "EMFILE"
    assert cause_of(ValueError("no")) == "ValueError"


# --- from outside ---------------------------------------------------------------------------------


def said(**more: object) -> dict[str, Any]:
    """As a program prints it: two seconds, from 1 s on."""
    usual = {"began_ns": 1000 * MS, "ended_ns": 3000 * MS, "seconds": 2.0, "cpu_seconds": 1.0}
    memory = {"rss_bytes": 20_000 * 1024, "rss_peak_bytes": 30_000 * 1024}
    return {**usual, **memory, "switches_voluntary": 3, "switches_involuntary": 4, **more}


def test_only_what_was_seen_while_its_clock_ran_counts() -> None:
    samples = [
        Sample(at * MS, cpu * MS, machine * MS, rss)
        for at, cpu, machine, rss in [
            (900, 900, 0, 900_000_000),  # still importing
            (1000, 1000, 1000, 10_000_000),
            (2000, 1500, 2000, 20_000_000),
            (3000, 2000, 3000, 30_000_000),
            (3100, 2900, 9000, 900_000_000),  # over
        ]
    ]
    run = ModelRun.of(said(), samples)
    cores = os.cpu_count() or 1
    assert run.cpu_percent == pytest.approx(50)
    assert run.system_percent == pytest.approx(100 / cores)
    assert run.rss_mb == pytest.approx(20)
    assert run.rss_max_mb == pytest.approx(30_000 * 1024 / 1e6)
    assert run.switches == 7
    assert run.cpu_percent_max is None  # no window was seen whole


def test_a_maximum_is_of_the_busiest_window() -> None:
    # Looks of 50 ms; idle but for the 200 ms from 1400 ms on, in which it used all of one core.
    samples = [Sample(at * MS, min(200, max(0, at - 1400)) * MS, None, None) for at in range(1000, 3001, 50)]
    run = ModelRun.of(said(), samples)
    assert run.cpu_percent_max == pytest.approx(100)
    assert run.system_percent is None
    assert run.system_percent_max is None


def test_a_system_that_tells_no_memory_gives_none_and_not_0() -> None:
    run = ModelRun.of(said(rss_bytes=None, rss_peak_bytes=None), [])
    assert run.rss_mb is None
    assert run.rss_max_mb is None


def test_a_program_that_fails_is_a_sentence_with_its_last_words() -> None:
    with pytest.raises(LaunchError, match=r"ended with status 2; on stderr it said: .*invalid choice"):
        anyio.run(run_model, CPU, "--model", "nonsense", "--urls", 1)


def test_proxies_are_not_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "All_Proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("KEPT", str(tmp_path))
    kept = environment_without_proxies()
    assert kept["KEPT"] == str(tmp_path)
    assert not [name for name in kept if name.lower().endswith("_proxy")]
