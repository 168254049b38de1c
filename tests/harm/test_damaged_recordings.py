"""Damaged, foreign and newer files before every command that reads: a sentence and exit code 3, or what is left."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.cli import main
from mcp_probe.compare import bootstrap
from mcp_probe.model import End, Frame
from mcp_probe.record.damage import first_fault
from mcp_probe.record.file import encode, preamble
from tests.compare.recordings import calls
from tests.frames import MS, make_end, make_header, make_loop_sample, make_open, make_request, make_step, make_wait

DATA = Path(__file__).parent.parent / "data"
OLD = sorted(path.name for path in DATA.glob("recording-*.jsonl"))
SQL = "SELECT operation, count(*), sum(total_ms) FROM requests GROUP BY 1"
Mutation = Callable[[bytes, random.Random], bytes]
thoroughly = pytest.param(150, marks=[pytest.mark.endurance, pytest.mark.timeout(3600)])


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 20)


def recorded() -> bytes:
    """Some of each kind, as this version writes them."""
    waiting = make_request(31, "lookup", arrival_ns=5 * MS, queue_dispatch=4 * MS, waits=(make_wait(5 * MS, 9 * MS),))
    frames: list[Frame] = [*calls(count=30), waiting, make_step(5 * MS, 9 * MS), make_open(90)]
    frames.append(make_loop_sample([5 * MS]))
    frames.append(End(40_000 * MS, "exit", len(frames)))
    return b"".join([preamble(), encode(make_header()), *map(encode, frames)])


# --- mutations ----------------------------------------------------------------------------------------------


def flipped(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def beheaded(data: bytes, chance: random.Random) -> bytes:
    return data[chance.randrange(1, len(data)) :]


def of_lines(change: Callable[[list[bytes], random.Random], None]) -> Mutation:
    def mutate(data: bytes, chance: random.Random) -> bytes:
        lines = data.splitlines(keepends=True)
        change(lines, chance)
        return b"".join(lines)

    return mutate


def dropped(lines: list[bytes], chance: random.Random) -> None:
    first = chance.randrange(len(lines))
    del lines[first : first + chance.randint(1, 20)]


def doubled(lines: list[bytes], chance: random.Random) -> None:
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))


def shuffled(lines: list[bytes], chance: random.Random) -> None:
    chance.shuffle(lines)


ODD: list[Any] = [None, True, -1, 0.5, 2**63, -(2**70), 10**300, "", "x" * 300, "\x00", [], [[]], {}, {"a": 1}, [None]]


def of_another_type(lines: list[bytes], chance: random.Random) -> None:
    """One value somewhere in a line becomes something else."""
    at = chance.randrange(len(lines))
    value = place = json.loads(lines[at])
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and chance.random() < 0.6:
            place = place[key]
            continue
        place[key] = chance.choice(ODD)
        break
    lines[at] = json.dumps(value).encode() + b"\n"


def with_odd_line(lines: list[bytes], chance: random.Random) -> None:
    odd = [b"\x00" * 40, b"[" * 100_000, b'["end",1e999,"exit"]', b'["end",' + b"9" * 5000 + b',"x"]', b"NaN", b"{}"]
    odd += [b"\xff\xfe", b'["request"]', b'"' + b"a" * 500, b'["end",NaN,"exit"]', b'[["a"],1]', b"", b"null"]
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(odd) + b"\n")


def newer(lines: list[bytes], chance: random.Random) -> None:
    head = json.loads(lines[0])
    head["version"] = chance.choice([2, 99, "1", None, 1.5, [1]])
    lines[0] = json.dumps(head).encode() + b"\n"


def foreign(data: bytes, chance: random.Random) -> bytes:
    files = [gzip.compress(data, mtime=0), data.decode().encode("utf-16"), b"\xef\xbb\xbf" + data, b"\x00" * 500]
    files += [bytes(chance.randrange(256) for _ in range(500)), b"{}", b"[]\n[]\n", b"", b"\n"]
    files += [b'{"format": "mcp_probe.recording"}\n', b'{"resourceSpans": []}\n', b"GET / HTTP/1.1\r\n\r\n"]
    files += [data.replace(b"\n", b""), data.replace(b"\n", b"\r"), data[: data.index(b"\n") + 1]]
    return chance.choice([*files, data.split(b"\n", 1)[1]])


MUTATIONS: dict[str, Mutation] = {
    "bits flipped": flipped,
    "cut": cut,
    "beheaded": beheaded,
    "lines dropped": of_lines(dropped),
    "a line doubled": of_lines(doubled),
    "shuffled": of_lines(shuffled),
    "a value of another type": of_lines(of_another_type),
    "an odd line": of_lines(with_odd_line),
    "a newer version": of_lines(newer),
    "another file": foreign,
}
ORIGINALS = [recorded(), *((DATA / name).read_bytes() for name in OLD)]


def drawn(folder: Path) -> list[str | Path]:
    """Everything else that is made of a recording."""
    names = {"--html": "page.html", "--trace": "trace.json", "--speedscope": "speedscope.json"}
    return [part for option, name in names.items() for part in (option, folder / name)]


def ran(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """(exit code, stdout, stderr). A traceback would be an exception here."""
    code = main([str(argument) for argument in arguments])
    told = capfd.readouterr()
    assert "Traceback" not in told.out + told.err
    assert code in (0, 3), told.err
    assert code == 0 or told.err.startswith("mcp-probe: "), told.err
    assert "cannot be understood" not in told.err and "cannot be read: " not in told.err, told.err
    return code, told.out, told.err


@pytest.mark.parametrize("examples", [4, thoroughly])
@pytest.mark.parametrize("how", MUTATIONS)
def test_a_damaged_recording_gives_a_sentence_or_a_report_that_is_not_empty(
    how: str, examples: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, summary = tmp_path / "damaged.jsonl", tmp_path / "summary.json"

    @given(st.sampled_from(ORIGINALS), st.randoms(use_true_random=False))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def each(original: bytes, chance: random.Random) -> None:
        path.write_bytes(MUTATIONS[how](original, chance))
        code, _, _ = ran(capfd, "report", path, "--json", summary, *drawn(tmp_path))
        if code == 0:
            found = json.loads(summary.read_text())
            is_counted = original is ORIGINALS[0]  # an older version's end does not say how many lines there were
            assert found["requests"]["count"] > 0 or found["notes"] or not is_counted
            assert ran(capfd, "report", path)[1].strip()

    each()


@pytest.mark.parametrize("examples", [2, thoroughly])
@pytest.mark.parametrize("how", MUTATIONS)
def test_compare_and_query_of_a_damaged_recording_give_a_sentence_or_a_result(
    how: str, examples: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, sound = tmp_path / "damaged.jsonl", tmp_path / "sound.jsonl"
    sound.write_bytes(ORIGINALS[0])

    @given(st.sampled_from(ORIGINALS), st.randoms(use_true_random=False))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def each(original: bytes, chance: random.Random) -> None:
        path.write_bytes(MUTATIONS[how](original, chance))
        ran(capfd, "compare", sound, path)
        code, shown, told = ran(capfd, "query", SQL, path, "--no-cache", "--format", "csv")
        assert code == 3 or shown.count("\n") > 1 or told

    each()


@pytest.mark.parametrize("examples", [2, thoroughly])
@pytest.mark.parametrize("how", MUTATIONS)
def test_what_if_of_a_damaged_recording_gives_a_sentence_or_a_prediction(
    how: str, examples: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "damaged.jsonl"
    full = (DATA / "recording-v1-1126-fc996e6.jsonl").read_bytes()

    @given(st.randoms(use_true_random=False))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def each(chance: random.Random) -> None:
        path.write_bytes(MUTATIONS[how](full, chance))
        main(["what-if", str(path)])
        assert "cannot be understood" not in capfd.readouterr().err

    each()


# --- a value that is none is named --------------------------------------------------------------------------


def replaced(kind: str, field: str, value: Any) -> tuple[bytes, int]:
    """(a recording in which the first frame of ``kind`` has ``value`` in ``field``, the number of its line)."""
    lines = recorded().splitlines(keepends=True)
    place = json.loads(lines[0])["fields"][kind].index(field) + 1
    at = next(at for at, line in enumerate(lines) if line.startswith(f'["{kind}"'.encode()))
    values = json.loads(lines[at])
    values[place] = value
    lines[at] = json.dumps(values).encode() + b"\n"
    return b"".join(lines), at + 1


@pytest.mark.parametrize("command", ["report", "compare", "query"])
@pytest.mark.parametrize(
    ("kind", "field", "value", "sentence"),
    [
        ("request", "end_ns", "later", "`end_ns` is 'later'; expected a whole number"),
        ("step", "end_ns", 10**400, "`end_ns` is a number of more than 30 digits; expected a number of 64 bits"),
        ("request", "budget", [1, 2, "x", *[0] * 9], "`busy` is 'x'; expected a whole number"),
        ("request", "waits", [[1, 2, {}, "queue"]], "`end_ns` is {}; expected a whole number"),
        ("step", "start_ns", None, "`start_ns` is None; expected a whole number"),
        ("loop", "iterations", [[10**12, 1, 1]], "`iterations` is (1000000000000, 1, 1); expected a bucket from 0 to"),
        ("header", "start_ns", "x", "`start_ns` is 'x'; expected a whole number"),
    ],
)
def test_the_value_that_cannot_be_understood_is_named_with_its_line_and_what_was_expected(
    kind: str, field: str, value: Any, sentence: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, sound = tmp_path / "damaged.jsonl", tmp_path / "sound.jsonl"
    data, number = replaced(kind, field, value)
    path.write_bytes(data)
    sound.write_bytes(recorded())
    given: dict[str, list[str | Path]] = {
        "report": [path],
        "compare": [sound, path],
        "query": [SQL, path, "--no-cache"],
    }
    code, _, told = ran(capfd, command, *given[command])
    if (kind, command) == ("loop", "query"):  # it computes nothing with them
        assert code == 0
        return
    assert code == 3
    assert f"{path}, line {number}: damaged, {sentence}" in told
    assert "make the recording again" in told


def test_a_fault_of_ours_is_not_told_as_damage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Fold, frame: Frame) -> None:
        raise ZeroDivisionError("ours")

    path = tmp_path / "sound.jsonl"
    path.write_bytes(recorded())
    monkeypatch.setattr(Fold, "add", fail)
    code = main(["report", str(path)])
    told = capfd.readouterr().err
    assert code == 3
    assert "cannot be understood (ZeroDivisionError: ours)" in told and "please report this" in told


@pytest.mark.parametrize("name", OLD)
def test_nothing_in_a_recording_that_was_ever_written_is_taken_for_damage(name: str) -> None:
    assert first_fault([DATA / name]) == ""


def test_files_of_other_kinds_are_not_taken_for_damaged_recordings(tmp_path: Path) -> None:
    for number, data in enumerate([b"", b"{}\n", b"GET / HTTP/1.1\r\n", b"\x00" * 99]):
        (tmp_path / f"{number}").write_bytes(data)
    assert first_fault([*sorted(tmp_path.iterdir()), tmp_path / "gone", tmp_path]) == ""


# --- what is missing is said --------------------------------------------------------------------------------


def notes_of(tmp_path: Path, data: bytes, capfd: pytest.CaptureFixture[str]) -> str:
    """What the report says, and the query as well."""
    path, summary = tmp_path / "a.jsonl", tmp_path / "a.json"
    path.write_bytes(data)
    assert ran(capfd, "report", path, "--json", summary)[0] == 0
    _, _, told = ran(capfd, "query", SQL, path, "--no-cache")
    notes = " ".join(json.loads(summary.read_text())["notes"])
    for words in ("lines are missing", "too many", "stops without an end"):
        assert (words in notes) == (words in told)
    return notes


def test_a_sound_recording_has_no_note(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert notes_of(tmp_path, recorded(), capfd) == ""


def test_lines_that_were_removed_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = recorded().splitlines(keepends=True)
    assert "7 of its lines are missing" in notes_of(tmp_path, b"".join(lines[:5] + lines[12:]), capfd)


def test_lines_that_came_twice_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = recorded().splitlines(keepends=True)
    assert "2 lines too many" in notes_of(tmp_path, b"".join([*lines[:5], *lines[3:5], *lines[5:]]), capfd)


def test_a_recording_that_was_cut_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "stops without an end" in notes_of(tmp_path, recorded()[:-60], capfd)


def test_an_end_of_an_older_version_counts_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = recorded().splitlines(keepends=True)
    assert notes_of(tmp_path, b"".join([*lines[:4], encode(make_end())]), capfd) == ""


# --- older versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OLD)
def test_recordings_of_older_versions_are_read_by_every_command(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes((DATA / name).read_bytes())
    assert ran(capfd, "report", path, "--json", tmp_path / "summary.json")[0] == 0
    assert json.loads((tmp_path / "summary.json").read_text())["requests"]["count"] > 0
    assert ran(capfd, "report", path, *drawn(tmp_path))[0] == 0
    assert ran(capfd, "compare", path, path)[0] == 0
    code, shown, _ = ran(capfd, "query", SQL, path, "--no-cache", "--format", "csv")
    assert code == 0
    assert shown.count("\n") > 1
