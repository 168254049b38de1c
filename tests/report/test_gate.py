"""A judgement in sentences, as JUnit XML and as annotations; and the baseline it was compared with."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.fail_on import parse_fail_on
from mcp_probe.aggregate.gate import Case, Judgement, Server, judge
from mcp_probe.errors import RecordingError
from mcp_probe.model import Finding
from mcp_probe.report import junit
from mcp_probe.report.baseline import read_baseline
from mcp_probe.report.gate import told
from mcp_probe.report.github import annotated
from tests.aggregate.faults import FAULTS
from tests.aggregate.summaries import make_summary

HOSTILE = 'a & b < c > "d" \x00\x1b[31m \ud800\ufffe ]]> &amp; é 字 \U0001f600\r\n\t--'


def make_finding(text: str = "`resize` blocked.", **changed: Any) -> Finding:
    evidence: dict[str, Any] = {"file": "/srv/app/server.py", "line": 41, "function": "resize"}
    return replace(Finding("blocking-call", "warn", "exact", "resize", text, f"Mend: {text}", {**evidence}), **changed)


def make_judgement(*cases: Case, problems: tuple[str, ...] = (), name: str = "shop") -> Judgement:
    return Judgement((Server(name, 2.5, cases),), problems, ())


# --- JUnit ------------------------------------------------------------------------------------------


def written(judgement: Judgement) -> str:
    stream = io.StringIO()
    junit.write(judgement, stream)
    return stream.getvalue()


def parsed(judgement: Judgement) -> ElementTree.Element:
    """Read as bytes by expat, which takes no character or entity that XML 1.0 has not; then held to the schema."""
    root = ElementTree.fromstring(written(judgement).encode("utf-8"))
    hold_to_schema(root)
    return root


def hold_to_schema(root: ElementTree.Element) -> None:
    """The part of jenkinsci/xunit-plugin's junit-10.xsd that these files use: elements, attributes, and true counts."""
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    assert root.tag == "testsuites"
    assert root.attrib.keys() == {"name", "tests", *kinds}
    for suite in root:
        assert suite.tag == "testsuite"
        assert suite.attrib.keys() == {"name", "tests", "time", *kinds}
        assert re.fullmatch(r"\d+\.\d{3}", suite.attrib["time"])
        assert int(suite.attrib["tests"]) == len(suite)
        for attribute, kind in kinds.items():
            assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{kind}"))
        for case in suite:
            assert case.tag == "testcase"
            assert case.attrib.keys() == {"name", "classname"}
            outcomes = [each for each in case if each.tag != "system-out"]
            assert len(outcomes) <= 1
            assert {each.tag for each in case} <= {"failure", "error", "skipped", "system-out"}
            for each in outcomes:
                assert each.attrib.keys() <= {"message", "type"}
            assert all(len(each) == 0 for each in case)
    for attribute in ("tests", *kinds):
        assert int(root.attrib[attribute]) == sum(int(suite.attrib[attribute]) for suite in root)


def test_a_code_that_fails_has_its_sentence_line_and_advice() -> None:
    root = parsed(make_judgement(Case("blocking-call", (make_finding(),), (), None), Case("gc-pause", (), (), None)))
    failing, passing = root.findall("testsuite[@name='shop']/testcase")
    failure = failing.find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "`resize` blocked.", "type": "warn"}
    assert failure.text == "warn: `resize` blocked.\nat server.py:41\nMend: `resize` blocked."
    assert (passing.attrib["name"], len(passing)) == ("gc-pause", 0)


def test_several_findings_of_a_code_are_one_failure_and_known_ones_are_output() -> None:
    two = (make_finding("First."), make_finding("Second."))
    case = parsed(make_judgement(Case("blocking-call", two, (make_finding("Old."),), None))).find(".//failure/..")
    assert case is not None
    assert "First." in str(case.findtext("failure"))
    assert "Second." in str(case.findtext("failure"))
    assert "Known from the baseline: warn: Old." in str(case.findtext("system-out"))
    known = parsed(make_judgement(Case("blocking-call", (), (make_finding("Old."),), None)))
    assert known.attrib["failures"] == "0"


def test_what_was_not_checked_is_skipped_and_what_was_not_measured_is_an_error() -> None:
    root = parsed(make_judgement(Case("memory-peak", (), (), "no memory"), problems=("Nothing.", "And no probe.")))
    assert (root.attrib["skipped"], root.attrib["errors"]) == ("1", "1")
    assert root.findtext("testsuite[@name='mcp-probe']/testcase[@name='measured']/error") == "Nothing.\nAnd no probe."


def test_a_run_without_a_server_is_a_file_with_an_error() -> None:
    assert parsed(judge([], parse_fail_on("warn"))).attrib["errors"] == "1"


@given(st.text(st.characters(codec=None)))
def test_no_text_breaks_the_file(text: str) -> None:
    finding = make_finding(text, evidence={"file": text, "line": 1})
    root = parsed(make_judgement(Case("blocking-call", (finding,), (finding,), text), problems=(text,), name=text))
    failure = root.find(".//failure")
    assert failure is not None
    kept = re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    assert failure.attrib["message"] == kept


def test_hostile_text_is_kept_but_for_what_xml_cannot_hold() -> None:
    failure = parsed(make_judgement(Case("blocking-call", (make_finding(HOSTILE),), (), None))).find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == re.sub("[\x00\x1b\ud800\ufffe]", "\ufffd", HOSTILE)


# --- GitHub -----------------------------------------------------------------------------------------


def test_an_annotation_names_the_file_as_the_repository_does(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    server = tmp_path / "app" / "server.py"
    server.touch()
    here = make_finding(evidence={"file": str(server), "line": 41})
    text = annotated(make_judgement(Case("blocking-call", (here,), (), None)), str(tmp_path))
    assert text == (
        "::error file=app/server.py,title=mcp-probe%3A blocking-call,line=41::"
        "`resize` blocked.%0AMend: `resize` blocked.\n"
    )


def test_a_file_outside_the_checkout_is_not_named(tmp_path: Path) -> None:
    text = annotated(make_judgement(Case("blocking-call", (make_finding(),), (), None)), str(tmp_path))
    assert text.startswith("::error title=mcp-probe%3A blocking-call::")


def test_known_findings_are_notices_and_problems_are_errors(tmp_path: Path) -> None:
    judgement = make_judgement(Case("blocking-call", (), (make_finding(),), None), problems=("Nothing.",))
    first, second = annotated(judgement, str(tmp_path)).splitlines()
    assert first == "::error title=mcp-probe::Nothing."
    assert second.startswith("::notice title=mcp-probe%3A blocking-call (known from the baseline)::")


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_leaves_its_annotation(text: str) -> None:
    finding = make_finding(text, code=text or "x", advice="")
    output = annotated(make_judgement(Case("blocking-call", (finding,), (), None)), "/nowhere")
    found = re.fullmatch(r"::error title=([^:,\r\n]*)::([^\r\n]*)\n", output)
    assert found is not None
    title, data = (re.sub("%(25|0D|0A|3A|2C)", lambda hit: chr(int(hit[1], 16)), part) for part in found.groups())
    assert (title, data) == (f"mcp-probe: {text or 'x'}", text)


# --- sentences --------------------------------------------------------------------------------------


def test_stderr_says_what_fails_what_is_known_and_what_is_new() -> None:
    judgement = make_judgement(Case("blocking-call", (make_finding(),), (make_finding(subject="crop"),), None))
    assert told(judgement, is_compared=False)[-1] == "failing because of blocking-call (--fail-on)."
    sentences = told(judgement, is_compared=True)
    assert "known from the baseline, so it does not fail: blocking-call of `crop` at server.py:41." in sentences
    assert sentences[-1] == "not in the baseline: blocking-call of `resize` at server.py:41."


# --- baseline ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", FAULTS)
def test_a_report_is_its_own_baseline(code: str, tmp_path: Path) -> None:
    from mcp_probe.aggregate.findings import findings_of
    from mcp_probe.report import jsonfile

    summary = replace(FAULTS[code], findings=findings_of(FAULTS[code]), probe=replace(FAULTS[code].probe, awaits="on"))
    path = tmp_path / "baseline.json"
    with path.open("w") as stream:
        jsonfile.write(summary, stream)
    rules = parse_fail_on("info")
    assert judge([summary], rules).failing
    found = judge([summary], rules, read_baseline(path))
    assert not found.failing
    assert [each.code for each in found.known] == [each.code for case in found.servers[0].cases for each in case.known]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "Cannot read the baseline"),
        ("", "not JSON"),
        pytest.param("[" * 200_000, "not JSON", id="nested"),
        ("[1]", "no report of mcp_probe"),
        ('"x"', "no report of mcp_probe"),
        ('{"findings": []}', "no report of mcp_probe"),
        ('{"format": "mcp_probe.summary/99", "findings": []}', "of the format 'mcp_probe.summary/99'"),
        ('{"format": "FORMAT"}', "damaged"),
        ('{"format": "FORMAT", "findings": [1]}', "damaged"),
        ('{"format": "FORMAT", "findings": [{"code": "x", "subject": "y", "severity": "bad", "evidence": {}}]}', "dam"),
        ('{"format": "FORMAT", "findings": [{"code": "x", "subject": "y", "severity": "warn"}]}', "damaged"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_an_error(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content.replace("FORMAT", make_summary().format))
    with pytest.raises(RecordingError, match=words):
        read_baseline(path)


def test_what_the_evidence_of_a_baseline_holds_breaks_nothing(tmp_path: Path) -> None:
    odd = {"code": "blocking-call", "subject": "resize", "severity": "warn", "evidence": {"file": [], "max_ms": {}}}
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"format": make_summary().format, "findings": [odd]}))
    assert not judge(
        [replace(make_summary(), findings=(make_finding(),))], parse_fail_on("warn"), read_baseline(path)
    ).passes
