"""A judgement as JUnit XML: a suite for each server, and in it one testcase for each code that was checked.

Source: https://github.com/testmoapp/junitxml (the common subset of what CI systems read).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TextIO
from xml.etree import ElementTree

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.gate import Case, Judgement, Server, place_of
from mcp_probe.model import Finding

# All that XML 1.0 may not contain, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(judgement: Judgement, stream: TextIO) -> None:
    """Writes all of ``judgement``. What XML cannot hold becomes U+FFFD."""
    root = ElementTree.Element("testsuites", name="mcp-probe")
    _add_suite(root, "mcp-probe", 0.0, [_run_case(judgement.problems)])
    for server in judgement.servers:
        _add_suite(root, _clean(server.name), server.seconds, [_case(server, case) for case in server.cases])
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    stream.write(f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _add_suite(root: ElementTree.Element, name: str, seconds: float, cases: list[ElementTree.Element]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)), time=f"{seconds:.3f}")
    for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(kind) is not None for case in cases)))
    suite.extend(cases)


def _run_case(problems: Iterable[str]) -> ElementTree.Element:
    """Whether the run could be judged at all."""
    case = ElementTree.Element("testcase", classname="mcp-probe", name="measured")
    sentences = [_clean(problem) for problem in problems]
    if sentences:
        error = ElementTree.SubElement(case, "error", message=sentences[0], type="not-measured")
        error.text = "\n".join(sentences)
    return case


def _case(server: Server, case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=f"mcp-probe.{_clean(server.name)}", name=case.code)
    if case.failing:
        first = case.failing[0]
        failure = ElementTree.SubElement(element, "failure", message=_clean(first.sentence), type=first.severity)
        failure.text = "\n\n".join(map(_told, case.failing))
    elif case.unchecked:
        ElementTree.SubElement(element, "skipped", message=_clean(f"Not checked: {case.unchecked}."))
    if case.known:
        known = ElementTree.SubElement(element, "system-out")
        known.text = "\n\n".join(f"Known from the baseline: {_told(finding)}" for finding in case.known)
    return element


def _told(finding: Finding) -> str:
    place = phrasing.place_of(*place_of(finding))
    rows = phrasing.place_rows(finding.places, phrasing.probably_at)
    at = [f"{figures}  {told}" for figures, told in rows] or [f"at {place}" if place else ""]
    lines = [f"{finding.severity}: {finding.sentence}", *at, finding.advice]
    return _clean("\n".join(line for line in lines if line))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
