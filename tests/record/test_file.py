from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.errors import RecordingError
from mcp_probe.model import (
    End,
    Frame,
    GrowthSample,
    GrowthSites,
    Header,
    LoopSample,
    MemoryUse,
    OpenRequest,
    Part,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Timeline,
)
from mcp_probe.record.file import (
    FORMAT_NAME,
    FORMAT_VERSION,
    LineDecoder,
    decode_lines,
    encode,
    encode_json,
    preamble,
    read_recording,
)
from mcp_probe.record.parts import RecordingWriter
from tests.frames import make_end, make_header, make_open, make_request, make_step, make_wait

DATA = Path(__file__).resolve().parent.parent / "data"
KINDS = [
    *(Header, RequestRecord, Timeline, RequestGroup, OpenRequest, StepRecord, LoopSample, PoolSample, ProcessSample),
    *(GrowthSample, GrowthSites, Part, End),
]


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Anything a frame's field may hold, by its annotation. NaN is left out: it equals nothing."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is int:
        return st.integers(-(2**63), 2**80)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is str:
        return st.text(max_size=12)
    if hint is bool:
        return st.booleans()
    if hint is type(None):
        return st.none()
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values_of(arg) for arg in args])
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values_of(args[0]), max_size=3).map(tuple)
        return st.tuples(*(values_of(arg) for arg in args))
    return frames_of(hint)


def frames_of(cls: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{name: values_of(hint) for name, hint in hints.items()})


def decode(lines: Iterable[bytes]) -> list[Frame]:
    return list(decode_lines(lines, "recording"))


def line_of(frame: Frame, kind: str, **changed: Any) -> bytes:
    """``frame`` as a writer with other fields would have written it: ``None`` leaves a field out."""
    names = json.loads(preamble())["fields"][kind]
    values = dict(zip(names, json.loads(encode(frame))[1:], strict=True))
    return encode_json([kind, *(value for name, value in values.items() if name not in changed)])


def preamble_without(kind: str, *names: str) -> bytes:
    head = json.loads(preamble())
    head["fields"][kind] = [name for name in head["fields"][kind] if name not in names]
    return encode_json(head)


# --- there and back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda cls: cls.__name__)
def test_every_kind_of_frame_comes_back_as_it_was(kind: type) -> None:
    @given(frames_of(kind))
    @settings(max_examples=40, deadline=None)
    def there_and_back(frame: Frame) -> None:
        line = encode(frame)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        (back,) = decode([preamble(), line])
        if isinstance(back, (End, Part)) and isinstance(frame, (End, Part)):  # the reader says what is missing
            back = replace(back, missing=frame.missing)
        assert back == frame
        assert type(back) is kind

    there_and_back()


def test_all_kinds_of_frames_are_tested_here() -> None:
    assert set(KINDS) == set(get_args(Frame))


def test_a_file_name_that_is_no_valid_text_survives() -> None:
    step = make_step(0, 5, file="caf\udce9.py", function="naïve\n\u2028")
    assert decode([preamble(), encode(step)]) == [step]


def test_lines_are_plain_ascii() -> None:
    assert encode(make_request(name="größe ☃")).isascii()


# --- the file -----------------------------------------------------------------------------------------------


def test_what_was_written_is_read_in_order(tmp_path: Path) -> None:
    frames: list[Frame] = [make_header(), make_request(waits=(make_wait(0, 5),)), make_step(0, 3), make_end()]
    writer = RecordingWriter(tmp_path / "a.jsonl")
    writer.write([encode(frame) for frame in frames[:2]])
    writer.write([encode(frame) for frame in frames[2:]])
    writer.close()
    assert list(read_recording(tmp_path / "a.jsonl")) == frames


def test_a_batch_is_in_the_file_once_write_has_returned(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a.jsonl")
    writer.write([encode(make_header())])
    try:
        assert list(read_recording(tmp_path / "a.jsonl")) == [make_header()]
    finally:
        writer.close()


@given(st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_a_recording_that_was_cut_off_anywhere_keeps_its_whole_lines(missing: int) -> None:
    lines = [preamble(), encode(make_header()), encode(make_request()), encode(make_step(0, 3))]
    whole = b"".join(lines)
    kept = whole[: len(whole) - min(missing, len(whole) - len(lines[0]))]
    if kept.count(b"\n") == 1:
        with pytest.raises(RecordingError, match="holds no frame"):
            decode(kept.splitlines(keepends=True))
        return
    frames = decode(kept.splitlines(keepends=True))
    assert frames == [make_header(), make_request(), make_step(0, 3)][: kept.count(b"\n") - 1]


def test_a_missing_file_is_said_so_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"nowhere\.jsonl: No such file"):
        list(read_recording(tmp_path / "nowhere.jsonl"))


def test_an_empty_file_says_that_nothing_was_recorded(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(RecordingError, match="is empty"):
        list(read_recording(tmp_path / "empty.jsonl"))


# --- other versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_version_is_refused_by_name(version: object) -> None:
    head = encode_json({"format": FORMAT_NAME, "version": version, "fields": {}})
    with pytest.raises(RecordingError, match=f"format version {version!r}; .* reads version {FORMAT_VERSION}"):
        decode([head])


@pytest.mark.parametrize("first", [b'{"format":"other"}\n', b"[]\n", b"3\n", b"{}\n", b"hello\n", b"\xff\xfe\n"])
def test_a_file_of_another_kind_is_refused(first: bytes) -> None:
    with pytest.raises(RecordingError, match="is not an mcp_probe recording"):
        decode([first])


def test_kinds_of_frames_this_version_does_not_know_are_passed_over() -> None:
    head = json.loads(preamble())
    head["fields"]["hologram"] = ["at_ns"]
    frames = decode([encode_json(head), encode_json(["hologram", 5]), encode(make_end())])
    assert frames == [make_end()]


def test_a_kind_that_not_even_the_first_line_names_is_passed_over() -> None:
    assert decode([preamble(), encode_json(["hologram", 5]), encode(make_end())]) == [make_end()]


def test_fields_this_version_does_not_know_are_ignored() -> None:
    head = json.loads(preamble())
    head["fields"]["end"] = ["new", "at_ns", "reason"]
    assert decode([encode_json(head), encode_json(["end", {"x": 1}, 7, "exit"])]) == [End(7, "exit")]


def test_requests_of_before_memory_was_measured_have_none() -> None:
    request = make_request(memory=MemoryUse("native-shadow", "all Python allocations", 9, 1, 8, 7))
    (frame,) = decode([preamble_without("request", "memory"), line_of(request, "request", memory=None)])
    assert frame == make_request()


def test_what_a_newer_version_knows_besides_of_memory_is_ignored() -> None:
    use = MemoryUse("native-hybrid", "all", 9, 1, 8, 7, (("peak", "bounded", 8, 9),), 3, 4)
    value = json.loads(encode(make_request(memory=use)))
    value[1 + json.loads(preamble())["fields"]["request"].index("memory")].append("new")
    assert decode([preamble(), encode_json(value)]) == [make_request(memory=use)]


def test_fields_an_older_writer_did_not_know_get_their_defaults() -> None:
    step = make_step(1, 2)
    names = ("running", "gc_ns", "where", "within")
    (frame,) = decode([preamble_without("step", *names), line_of(step, "step", **dict.fromkeys(names))])
    assert frame == step


def test_a_frame_that_lacks_a_field_without_default_is_refused_with_its_name() -> None:
    line = line_of(make_open(), "open", arrival_ns=None)
    with pytest.raises(RecordingError, match=r"line 2: .*open frame lacks arrival_ns"):
        decode([preamble_without("open", "arrival_ns"), line])


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damaged",
    [
        b'["end",5\n',
        b"\n",
        b"\xff\n",
        b'["end"]\n',
        b'["end",1,"exit",9]\n',
        b'{"end":1}\n',
        b"[]\n",
        b"7\n",
        b'"end"\n',
        b"null\n",
        b'[["end"],1]\n',
        b"[{},1]\n",
        encode_json(["request", *([None] * 29)]),
    ],
)
def test_a_damaged_line_is_named_by_its_number(damaged: bytes) -> None:
    lines = [preamble(), encode(make_header()), damaged, encode(make_end())]
    with pytest.raises(RecordingError, match=r"^recording, line 3: "):
        decode(lines)


@pytest.mark.parametrize("fields", [{}, {"fields": None}, {"fields": []}, {"fields": {"end": 3}}, {"fields": "x"}])
def test_a_first_line_whose_fields_are_no_table_is_refused(fields: dict[str, object]) -> None:
    head = encode_json({"format": FORMAT_NAME, "version": FORMAT_VERSION, **fields})
    with pytest.raises(RecordingError, match="does not list the fields"):
        decode([head])


def test_a_decoder_may_be_fed_line_by_line() -> None:
    decoder = LineDecoder()
    assert decoder.feed(preamble()) is None
    assert decoder.feed(encode(make_end())) == make_end()


# --- files of old versions ------------------------------------------------------------------------------------


def test_the_first_version_is_still_read() -> None:
    """A recording as version 1 was first written, with every kind of frame; never to be regenerated."""
    frames = list(read_recording(DATA / "recording-v1.jsonl"))
    assert [type(frame) for frame in frames] == [
        Header,
        StepRecord,
        OpenRequest,
        RequestRecord,
        RequestRecord,
        LoopSample,
        PoolSample,
        ProcessSample,
        End,
    ]
    header, step, still_open, answered, unfinished = frames[:5]
    assert isinstance(header, Header)
    assert (header.server, header.loop, header.hooks[0]) == ("shop", "asyncio", ("gc", "active"))
    assert isinstance(step, StepRecord)
    assert (step.end_ns - step.start_ns, step.cause, step.line) == (120_000_000, "blocking-call", 12)
    assert isinstance(still_open, OpenRequest)
    assert still_open.name == "report"
    assert isinstance(answered, RequestRecord)
    assert answered.budget.busy == 1_500_000
    assert answered.waits[0].stage == "queue"
    assert answered.quality == (("queue_transport", "bounded", 90_000_000, 119_000_000),)
    assert isinstance(unfinished, RequestRecord)
    assert (unfinished.outcome, unfinished.budget.write_flush) == ("unfinished", None)
