"""Clients of a drawn server: what they waited, by a truth that the server's sleeps construct."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tools.counterfactual import bare
from tools.counterfactual import kind as kinds_of
from tools.counterfactual.bare import Truth
from tools.counterfactual.draw import Server, compose
from tools.counterfactual.drive import Broken, backend, python_of, run
from tools.counterfactual.probed import probe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads CPU of other processes from /proc")
PIECE = Path(__file__).with_name("piece.txt").read_text("utf-8")


def _server(text: str = PIECE) -> Server:
    kind = kinds_of._parse("blocked_loop", text.replace("40..60", "50..50"), is_fault=True)
    if not python_of("mcp2").exists():
        pytest.skip("make envs")
    return compose("1", "mcp2", "stdio", [kind], [], random.Random(1))


def test_clients_wait_as_long_as_the_sleeps_before_their_answers_last() -> None:
    server = _server()
    with backend() as service:
        sick, mended = (run(server, server.sources[form], service) for form in (None, 0))
    # Two clients call three times each, 50 ms on the loop: one waits for 50 ms, the other for 100, and each for both
    # from then on.
    assert sick.waited_s - sick.start_s >= 0.05 + 5 * 0.1 - 0.05
    assert mended.waited_s - mended.start_s >= 6 * 0.05
    assert sick.waited_s - sick.start_s > mended.waited_s - mended.start_s
    assert (sick.calls, sick.failed, sick.given_up) == (6, 0, 0)
    assert sick.answers.keys() == mended.answers.keys() and not bare.difference(sick, mended)


def test_a_call_that_hangs_is_given_up_and_counts_as_long_as_its_client_waited() -> None:
    server = _server(
        PIECE.replace("time.sleep(HOLD_MS / 1000)", "time.sleep(30)").replace("mend:", "gives_up: 1\nmend:")
    )
    with backend() as service:
        sick = run(server, server.sources[None], service)
    assert sick.given_up == 4, "each of two clients gives up twice"
    assert 4 <= sick.waited_s - sick.start_s < 6


def test_a_server_that_ends_by_itself_is_broken() -> None:
    server = _server(PIECE.replace("time.sleep(HOLD_MS / 1000)", "os._exit(3)").replace("import time", "import os"))
    with backend() as service, pytest.raises(Broken):
        run(server, server.sources[None], service)


def test_answers_that_differ_break_the_seed() -> None:
    server = _server(PIECE.replace("    #: end", "    text += ' mended'\n    #: end"))
    with backend() as service:
        truth = bare.measure(server, service, [False], rounds=1)
    assert "was answered by" in truth.broken


def test_a_probed_run_has_its_verdict_and_its_report() -> None:
    server = _server()
    with backend() as service:
        probed = probe(server, service)
    assert probed.verdict.code, probed.verdict.sentence
    assert probed.reported_s is not None and probed.reported_s > 0
    assert probed.report


def test_what_was_measured_is_kept_in_the_order_of_seeds(tmp_path: Path) -> None:
    kept = tmp_path / "bare.json"
    truths = {"10": Truth("b", broken="why"), "2": Truth("a", (1.0, 2.0), ((0.5, 0.5),), (1.0,), ((1.0,),), (True,))}
    bare.write_truths(truths, kept)
    assert bare.read_truths(kept) == truths
    assert list(bare.read_truths(kept)) == ["2", "10"]
