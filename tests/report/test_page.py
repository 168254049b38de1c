"""The page: the same figures and sentences as on the console, whole or not, and nothing of the server is markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mcp_probe import cli
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Frame, RequestRecord, Summary
from mcp_probe.record.file import encode, preamble, read_recording
from mcp_probe.report import figures
from mcp_probe.report.content import sections
from mcp_probe.report.page import window as window_module
from mcp_probe.report.page.compose import page_data, render
from mcp_probe.report.page.levels import MOST_BINS, Bins, Level
from mcp_probe.report.page.waterfalls import MOST_SHOWN
from mcp_probe.report.page.window import Window
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_group,
    make_header,
    make_open,
    make_process,
    make_request,
    make_step,
    make_wait,
)
from tests.report.page_reader import Reader, missing
from tests.report.recordings import LINE, shop
from tests.report.test_tracks import full, ordinary, timeline

RECORDING = Path(__file__).parent.parent / "data" / "recording-v1.jsonl"
EVIL = "</script><img src=x onerror=alert(1)>"


def folded(frames: Iterable[Frame]) -> tuple[Summary, Window]:
    fold, window = Fold(), Window()
    for frame in frames:
        fold.add(frame)
        window.add(frame)
    return fold.summary(), window


def page_of(frames: Iterable[Frame]) -> str:
    return render(folded(frames), cwd="/srv/shop")


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return list(shop(1500))


@pytest.fixture(scope="module")
def page(frames: list[Frame]) -> Reader:
    return Reader(page_of(frames))


# --- the same as the summary ----------------------------------------------------------------------


def test_every_sentence_of_the_console_stands_on_the_page(frames: list[Frame], page: Reader) -> None:
    summary, _ = folded(frames)
    for blocks in sections(summary, cwd="/srv/shop").values():
        assert missing(blocks, page.text) == []


def test_percentiles_and_counts_equal_the_summarys(frames: list[Frame], page: Reader) -> None:
    summary, _ = folded(frames)
    assert summary.requests.count == 1500
    assert "1,500 requests" in page.text
    for operation in summary.operations:
        assert figures.duration(operation.total_ms.p50) in page.text
        assert figures.duration(operation.total_ms.p95) in page.text
    assert summary.verdict.sentence.replace("`", "").split(" (")[0] in page.text.replace("  ", " ")


def test_the_map_has_the_pairs_of_the_summary_with_their_times(frames: list[Frame], page: Reader) -> None:
    summary, _ = folded(frames)
    cells = {
        (str(found["data-victim"]), str(found["data-blocker"])): str(found["aria-label"])
        for tag, found in page.elements
        if tag == "button" and "data-victim" in found
    }
    told = {(row.victim, row.blocker): row for row in summary.blocked_by if row.lo_ms >= 1}
    assert told and told.keys() <= cells.keys()
    for pair, row in told.items():
        if row.lo_ms == row.hi_ms and row.quality == "exact":
            assert f"waited {figures.duration(row.hi_ms)} for" in cells[pair]


def test_each_kept_request_has_the_budget_and_the_blame_of_its_record(frames: list[Frame], page: Reader) -> None:
    records = {frame.id: frame for frame in frames if isinstance(frame, RequestRecord)}
    shown = page.data["requests"]
    assert 20 <= len(shown) <= MOST_SHOWN
    for request in shown:
        record = records[request["id"]]
        assert request["to"] - request["from"] == pytest.approx((record.end_ns - record.arrival_ns) / MS, abs=0.002)
        assert sum(request["budget"]) == pytest.approx(request["to"] - request["from"], abs=0.02)
        assert request["name"] == record.name
    slowest = max(records.values(), key=lambda record: record.end_ns - record.arrival_ns)
    assert shown[0]["id"] == slowest.id


def test_a_request_names_the_line_that_held_it_up_and_leads_to_its_request(page: Reader) -> None:
    shown = {request["id"]: request for request in page.data["requests"]}
    victims = [request for request in shown.values() if any(name == "resize" for name, _, _ in request["blamed"])]
    assert victims
    blocked = [step for request in victims for step in request["blocked"] if step[2] == "resize"]
    assert {step[4] for step in blocked} == {f"{LINE[0].rpartition('/')[2]}:{LINE[1]}"}
    assert {step[5] for step in blocked} == {"blocking call"}
    assert any(step[3] in shown and shown[step[3]]["name"] == "resize" for step in blocked)
    pairs = {(pair["victim"], pair["blocker"]): pair["ids"] for pair in page.data["pairs"]}
    assert pairs["lookup", "resize"] and set(pairs["lookup", "resize"]) <= shown.keys()


def test_occupancy_is_the_time_of_the_steps(frames: list[Frame], page: Reader) -> None:
    data = page.data
    (resize,) = (row for row in data["occupancy"] if row["name"] == "resize")
    steps: list[Any] = [frame for frame in frames if getattr(frame, "operation", None) == "resize"]
    truth_ms = sum(step.end_ns - step.start_ns for step in steps) / MS
    assert sum(resize["values"]) / 1000 * data["bin"] == pytest.approx(truth_ms, rel=0.01)


def test_a_recorded_file_gives_a_page(tmp_path: Path) -> None:
    found = Reader(page_of(read_recording(RECORDING)))
    assert found.data["requests"]
    assert cli.main(["report", "--html", str(tmp_path / "page.html"), str(RECORDING)]) == 0
    written = Reader((tmp_path / "page.html").read_text("utf-8"))
    assert written.data["requests"] == found.data["requests"]


def test_nothing_at_all_gives_a_page_that_says_so() -> None:
    summary, window = folded(())
    found = Reader(render((summary, window), cwd="/"))
    assert "No request reached this server" in found.text
    assert found.data["requests"] == []


# --- several ---------------------------------------------------------------------------------------


def test_several_recordings_stand_on_one_page_without_an_id_twice(frames: list[Frame]) -> None:
    found = Reader(render(folded(frames), folded(read_recording(RECORDING)), folded(frames), cwd="/"))
    ids = [attributes["id"] for _, attributes in found.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert "3 recordings" in found.text
    links = [value for tag, found in found.elements if tag == "a" and (value := found.get("href"))]
    assert {"#verdict", "#2-verdict", "#3-verdict"} <= set(links)
    assert all(link[1:] in (*ids, "main") for link in links)
    first, second, third = (json.loads(script) for script in found.scripts[:3])
    assert first["requests"] == third["requests"] != second["requests"]


def test_the_command_takes_several_recordings_for_one_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page, copy = tmp_path / "page.html", tmp_path / "copy.jsonl"
    copy.write_bytes(RECORDING.read_bytes())
    assert cli.main(["report", "--html", str(page), str(RECORDING), str(copy)]) == 0
    assert "2 recordings" in page.read_text("utf-8")
    assert cli.main(["report", "--json", "-", str(RECORDING), str(copy)]) == cli.BAD_USE
    assert "--json takes one recording, and 2 were given" in capfd.readouterr().err


def test_the_console_names_each_of_several_recordings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(RECORDING.read_bytes())
    assert cli.main(["report", str(RECORDING), str(copy)]) == 0
    printed = capsys.readouterr().out
    assert 0 <= printed.index(str(RECORDING)) < printed.index(str(copy))


# --- full recordings -------------------------------------------------------------------------------


def test_a_full_recording_draws_what_each_request_did_in_its_order() -> None:
    data = page_data(*folded(full()), cwd="/")
    names = [part["name"] for part in data["parts"]]
    shown = {request["id"]: [(a, b, names[at]) for a, b, at in request["phases"]] for request in data["requests"]}
    assert [name for _, _, name in shown[1]][:2] == ["queue transport", "busy"]
    assert (11.0, 38.0, "awaiting") in shown[2] and (38.0, 40.0, "ready wait") in shown[2]
    for request in data["requests"]:
        phases = request["phases"]
        assert phases[0][0] == request["from"] and phases[-1][1] == request["to"]
        assert all(one[1] == next_[0] for one, next_ in pairwise(phases))


def test_an_ordinary_recording_draws_what_it_knows_and_leaves_the_rest_open() -> None:
    data = page_data(*folded(ordinary()), cwd="/")
    names = [part["name"] for part in data["parts"]]
    (request,) = (request for request in data["requests"] if request["id"] == 2)
    assert (38.0, 40.0, "ready wait") in [(a, b, names[at]) for a, b, at in request["phases"]]
    assert sum(b - a for a, b, _ in request["phases"]) <= request["to"] - request["from"]


def test_phases_of_many_requests_are_kept_of_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "MOST_WITH_PHASES", 10)
    _, window = folded(frame for id in range(1, 60) for frame in (make_request(id, busy=id * MS), timeline(id)))
    assert len(window.phases) <= 10
    assert 59 in window.phases


# --- what a recording has not ---------------------------------------------------------------------


def test_sampled_requests_are_said_to_be() -> None:
    groups = [make_group([(200, 900, 900 * MS)], first_ns=0, last_ns=SECOND)]
    found = Reader(page_of([make_header(), make_request(1, busy=MS, weight=901), *groups, make_end()]))
    assert "in flight are estimated" in found.text


def test_dropped_records_open_requests_and_a_missing_end_are_said() -> None:
    process = make_process(dropped=(("buffer full: requests", 3), ("buffer full: marks", 7)))
    summary, window = folded([make_header(), make_request(1, busy=MS), make_open(2), process])
    summary = replace(summary, requests=replace(summary.requests, dropped=3))
    text = Reader(render((summary, window), cwd="/")).text
    assert "3 requests of this window were lost" in text
    assert "1 request had not ended when the recording did" in text
    assert "The recording stops without an end" in text
    assert "Nothing of the event loop was seen" in text


def test_steps_that_are_left_out_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "MOST_STEPS", 10)
    steps = [make_step(at * 10 * MS, at * 10 * MS + (1 + at % 3) * MS) for at in range(30)]
    summary, window = folded([make_header(), *steps, make_request(1, busy=MS), make_end()])
    assert len(window.steps()) <= 20
    assert "may be missing" in Reader(render((summary, window), cwd="/")).text


# --- nothing of the server is markup --------------------------------------------------------------


def hostile() -> Iterator[Frame]:
    yield make_header(server=EVIL)
    yield make_step(
        0, 80 * MS, 1, EVIL, cause="blocking-call", file=f"/{EVIL}.py", line=3, function=EVIL, where="exact"
    )
    yield make_request(1, EVIL, busy=80 * MS, error=EVIL, outcome="error")
    for id in range(2, 30):
        waits = (make_wait(MS, 80 * MS),)
        yield make_request(id, EVIL + "2", arrival_ns=MS, ready_wait=79 * MS, busy=MS, waits=waits, loop=0)
    yield make_end()


def test_a_tools_name_is_text_wherever_it_stands() -> None:
    page = page_of(hostile())
    found = Reader(page)
    assert "onerror" in page
    assert not any(tag == "img" for tag, _ in found.elements)
    assert not any(key.startswith("on") for _, attributes in found.elements for key in attributes)
    assert len(found.scripts) == 2
    assert "<" not in found.scripts[0] and "&" not in found.scripts[0]
    assert any(request["name"] == EVIL for request in found.data["requests"])
    assert EVIL in unescape(found.text)


def test_a_name_that_turns_text_around_is_shown_as_escapes() -> None:
    name = "read\u202egnp.exe\x1b[31m"
    page = page_of([make_header(), make_request(1, name, busy=MS), make_end()])
    assert "\u202e" not in page and "\x1b" not in page


def test_the_policy_lets_nothing_load_and_only_this_script_run(page: Reader) -> None:
    (policy,) = (found["content"] for tag, found in page.elements if found.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; ")
    script = re.search(r"script-src ([^;]+);", policy)
    assert script is not None and script[1].startswith("'sha256-") and "unsafe" not in script[1]
    links = {"src", "href", "action", "data", "srcset"}
    addresses = [value for _, found in page.elements for key, value in found.items() if key in links]
    assert all(address is not None and address.startswith("#") for address in addresses)


def test_the_pages_own_code_is_far_below_what_was_allowed() -> None:
    folder = Path(window_module.__file__).parent
    assert sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".css", ".html", ".js")) < 100_000


# --- size -----------------------------------------------------------------------------------------


def test_what_is_kept_does_not_grow_with_the_recording() -> None:
    data = page_data(*folded(shop(4000)), cwd="/")
    assert len(data["requests"]) <= MOST_SHOWN < 4000
    assert data["bins"] <= MOST_BINS
    assert len(json.dumps(data)) < 2_000_000


# --- levels ---------------------------------------------------------------------------------------


def test_a_level_keeps_its_integral_however_often_bins_become_one() -> None:
    bins = Bins(0)
    level = Level(bins)
    for at in range(100):
        level.add(at * 90 * MS, at * 90 * MS + 31 * MS, 2.0)
    assert bins.bin_ns > MS and bins.count <= MOST_BINS
    assert sum(level.means()) * bins.bin_ns == pytest.approx(100 * 31 * MS * 2)


def test_a_level_is_the_mean_of_each_bin() -> None:
    level = Level(Bins(0))
    level.add(0, 2 * MS)
    level.add(MS // 2, 3 * MS, 2.0)
    level.add(5 * MS, 5 * MS)
    assert list(level.means())[:4] == pytest.approx([2.0, 3.0, 2.0, 0.0])


def test_spans_before_the_window_count_from_its_start() -> None:
    level = Level(Bins(10 * MS))
    level.add(0, 11 * MS)
    assert level.means()[0] == pytest.approx(1.0)


def test_a_recording_on_disk_is_read_as_it_was_written(tmp_path: Path, frames: list[Frame]) -> None:
    path = tmp_path / "shop.jsonl"
    path.write_bytes(preamble() + b"".join(map(encode, frames)))
    assert Reader(page_of(read_recording(path))).data == Reader(page_of(frames)).data
