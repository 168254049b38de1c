"""Whether a report's verdict names what costs the clients most, and what would mend it.

The judge reads what a person reads first: the verdict's code, severity, sentence and advice. It knows causes by their
lines and things, and mends by words of their kind; it does not know the sentences of today.

- *right*: a warning or worse that names a line or the thing of a cause whose removal saves at least 0.7 of the best
  removal; of a server without a cause, a verdict that accuses nobody.
- *lesser*: it names a cause that saves at least a tenth, and less than 0.7 of the best.
- *vague*: it names no line and no thing, but the function or tool around such a cause, with a mend of the right kind.
- *false*: it accuses anything else, such as a cause that saves less than a tenth, or something that is no cause.
- *absolved*: the server is sick, and the verdict accuses nobody.
- *broken*: the server did not run, or did not report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tools.counterfactual.bare import SICK_FROM, Truth
from tools.counterfactual.draw import Cause, Server
from tools.counterfactual.mends import has_mend

ENOUGH = 0.7
UNNAMED = ("long-wait", "unexplained-wait")
Outcome = Literal["right", "lesser", "vague", "false", "absolved", "broken"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the first lines of a report say. ``explains`` is the share of all waiting that they claim, or None."""

    code: str
    severity: str
    sentence: str
    advice: str
    explains: float | None

    @property
    def accuses(self) -> bool:
        return self.severity in ("warn", "critical")

    @property
    def text(self) -> str:
        return f"{self.sentence} {self.advice}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``mend`` and ``holder`` are None where nothing is to be named: no right verdict, or no holder of that cause."""

    outcome: Outcome
    named: tuple[str, ...] = ()
    saves: float | None = None
    """Of the named cause that saves most."""
    explains: float | None = None
    mend: bool | None = None
    holder: bool | None = None
    unnamed: bool = False
    """Whether the verdict's code is one of those that say where, and not what."""


def read_verdict(report: Mapping[str, Any]) -> Verdict:
    """Returns the verdict of a report in JSON; a code without a finding (`healthy`) accuses nobody."""
    verdict = report["verdict"]
    same = [
        one
        for one in report["findings"]
        if one["code"] == verdict["code"] and one["subject"] == verdict.get("subject", one["subject"])
    ]
    if not same:
        return Verdict(verdict["code"], "info", verdict["sentence"], "", None)
    finding, waited = same[0], report.get("clients_waited_ms")
    cost = finding.get("cost_ms")
    explains = cost / waited if waited and cost is not None else None
    return Verdict(verdict["code"], finding["severity"], verdict["sentence"], finding["advice"] or "", explains)


def judge(server: Server, truth: Truth, verdict: Verdict) -> Judgement:
    """Compares a verdict with what removals save."""
    if truth.broken or not verdict.code:
        return Judgement("broken")
    unnamed = verdict.code in UNNAMED
    if not truth.is_sick:
        return Judgement("false" if verdict.accuses else "right", explains=verdict.explains, unnamed=unnamed)
    if not verdict.accuses:
        return Judgement("absolved")
    savings = dict(zip(server.causes, truth.savings, strict=True))
    named = sorted((one for one in server.causes if names(verdict, one)), key=savings.__getitem__, reverse=True)
    kinds = tuple(cause.kind for cause in named)
    saves = savings[named[0]] if named else None
    if saves is None and (around := _around(verdict, savings)):
        return Judgement("vague", around, None, verdict.explains, True, unnamed=unnamed)
    if saves is None or saves < SICK_FROM:
        return Judgement("false", kinds, saves, verdict.explains, unnamed=unnamed)
    if saves < ENOUGH * truth.best:
        return Judgement("lesser", kinds, saves, verdict.explains, unnamed=unnamed)
    cause = named[0]
    mend = has_mend(cause.mend, verdict.advice)
    return Judgement("right", kinds, saves, verdict.explains, mend, names_holder(verdict.text, cause), unnamed)


def _around(verdict: Verdict, savings: Mapping[Cause, float]) -> tuple[str, ...]:
    """Returns the kinds of the causes in whose functions the verdict seeks the fault, if it says no place at all."""
    if re.search(r"\w\.py:\d", verdict.sentence):
        return ()
    return tuple(
        cause.kind
        for cause, saves in savings.items()
        if saves >= SICK_FROM
        and any(has_word(verdict.sentence, name) for name in cause.functions)
        and has_mend(cause.mend, verdict.advice)
    )


def names(verdict: Verdict, cause: Cause) -> bool:
    """Whether a verdict has a line of ``cause``, or its thing.

    A thing counts in the sentence only: an advice speaks of pools and threads in general.
    """
    return bool(cause.lines & lines_in(verdict.text)) or any(has_word(verdict.sentence, one) for one in cause.things)


def names_holder(text: str, cause: Cause) -> bool | None:
    if not cause.holders and not cause.holder_lines:
        return None
    return bool(cause.holder_lines & lines_in(text)) or any(has_word(text, holder) for holder in cause.holders)


def lines_in(text: str) -> frozenset[int]:
    """Returns the numbers of the lines of `server.py` that ``text`` names, also those of "server.py:12 and :15"."""
    found: set[int] = set()
    for group in re.findall(r"server\.py:(\d+(?:(?:, | and |, and )(?:server\.py)?:\d+)*)", text):
        found.update(map(int, re.findall(r"\d+", group)))
    return frozenset(found)


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
