"""docs/findings.md says what the code does: every code, threshold and piece of evidence, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from mcp_probe.aggregate.findings import CODES, FindingOptions, findings_of
from tests.aggregate.faults import ALSO_FAULTS, FAULTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text("utf-8")
SECTIONS = {title: body for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)}
OPTIONS = {field.name: getattr(FindingOptions(), field.name) for field in fields(FindingOptions)}


def words_of(text: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_-]+)`", text))


def paragraph(code: str, label: str) -> str:
    found = re.search(rf"^\*\*{label}\*\*.*?(?=\n\n|\Z)", SECTIONS[f"`{code}`"], re.M | re.S)
    assert found, f"{code} has no paragraph {label}"
    return found[0]


def test_there_is_one_section_per_code_in_the_order_of_the_checks() -> None:
    assert [title for title in SECTIONS if title.startswith("`")] == [f"`{code}`" for code in CODES]


@pytest.mark.parametrize("code", CODES)
def test_a_section_begins_with_the_meaning_of_its_code(code: str) -> None:
    meaning = CODES[code]
    first = SECTIONS[f"`{code}`"].strip()
    assert first.startswith(meaning[0].upper() + meaning[1:])


@pytest.mark.parametrize("code", CODES)
def test_a_section_says_when_it_is_raised_what_to_do_and_what_is_a_near_miss(code: str) -> None:
    for label in ("Raised", "What to do", "Near miss"):
        assert len(paragraph(code, label)) > len(label) + 10


@pytest.mark.parametrize("code", CODES)
def test_a_section_names_all_evidence_of_its_finding_and_no_other(code: str) -> None:
    summaries = [FAULTS[code], *(summary for (of, _), summary in ALSO_FAULTS.items() if of == code)]
    shown = {
        name
        for summary in summaries
        for finding in findings_of(summary)
        if finding.code == code
        for name in finding.evidence
    }
    assert words_of(paragraph(code, "Evidence")) - OPTIONS.keys() == shown - OPTIONS.keys()


def test_every_threshold_is_listed_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|$", SECTIONS["Thresholds"], re.M))
    assert rows == {name: str(value) for name, value in OPTIONS.items() if name != "disabled"}


def test_every_threshold_is_explained_in_a_section_of_a_code() -> None:
    explained = {word for code in CODES for word in words_of(SECTIONS[f"`{code}`"])}
    assert OPTIONS.keys() - {"disabled"} <= explained
