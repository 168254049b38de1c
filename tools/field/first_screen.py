"""Judges the first screen of a report against the truth of its server.

The first screen is the first 40 lines of the console report at 100 columns: what a person sees before they scroll. Its
*verdict* is the first box on it. A box holds findings; each begins with a bullet, or with the name of one of the four
accounts (time, failures, memory, open), and its advice begins with an arrow. "Also found, below" is no finding.

A truth lists, as patterns of text: what names the cause (its line or its thing; one is enough), the mends of the right
kind (one is enough), the holder where somebody holds what others wait for, and the innocents. No pattern is a sentence
of a report, so a report may be worded anew. These rules decide, in this order:

1. A finding *accuses* the first thing that its text names: the cause, an innocent, or a false claim (such as the host,
   the garbage collector, a first call). Of a single finding that names none of these, the title counts. A `file.py:N`
   that belongs neither to the cause nor to its surroundings is an innocent, too. Who waited is a victim and is not
   accused: lists of who waited, "made X wait", "X was held up", "X waited for …", "X behind …". What the text denies
   ("not the host") is not accused either.
2. `false`: a finding of the box accuses an innocent or makes a false claim; or the box says "healthy", or "fine" of the
   account that the fault belongs to, and no finding of the box accuses the cause. What stands below does not help.
3. `found`: the first finding that is not "fine" accuses the cause, its advice has a mend of the right kind (its text
   counts only where it has no advice), and it names the holder where there is one.
4. `partly`: a finding of the box accuses the cause, but mend or holder is missing, or it is not the first; or the box
   accuses nobody, and the cause is named below it on the first screen.
5. `not found`: everything else, also a run without a report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

LINES = 40
COLUMNS = 100

Outcome = Literal["found", "partly", "not found", "false"]
OUTCOMES: tuple[Outcome, ...] = ("found", "partly", "not found", "false")
Account = Literal["time", "failures", "memory", "open"]
Accused = Literal["cause", "innocent", "false claim", "fine", "fine elsewhere", "nobody"]

HOST = r"\bhost-pressure\b|\bthe host\b|\bother (?:processes|programs)\b"
COLLECTOR = r"\bgc-pause\b|\bgarbage collect"
FIRST_CALL = r"\bcold-start\b(?!-)|\bfirst calls?\b"
HELD = r"\bcpu-bound-step\b|\bblocking-call\b"
ELSEWHERE = (HOST, COLLECTOR, FIRST_CALL)
"""Claims that are false of a server whose step does hold the event loop; of others `HELD` is false, too."""

_BULLETS = "●○■□▲△▶◆◇✓✔✗✘•*!"
_FINDING = re.compile(rf"\s*[{re.escape(_BULLETS)}]\s|\s*(?:time|failures|memory|open)(?:\s{{2,}}|\s*[:·–—])", re.I)
_ADVICE = re.compile(r"\s*(?:→|->|=>)\s*")
_ELSEWHERE = re.compile(r"\balso found\b.*", re.I | re.S)
_PLACE = re.compile(r"[\w…./-]+\.py:\d+(?:(?:, |-|–)\d+)*")
_TO_THE_END = r"(?:(?!\.\s|\.$|;).)*"
_SUBJECT = r"[`'\"][^`'\"]+[`'\"]"
_ACTS = r"\b(?:blocked|computed|computes|held|holds|kept|keeps|made|makes|took|takes|loads?|is|that|which|whose)\b"
_VICTIMS = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"\bwho (?:waited|waits|had to wait)\b{_TO_THE_END}",
        r"\bwaiting of\b(?:(?!\.\s|;|,).)*",
        r"\b(?:made|makes|kept|keeps|let|lets)\b(?:(?!\.\s|;).)*?\bwait(?:ing)?\b",
        r"\b(?:held up|delayed|victims?|starved|stalled)\b(?:(?!\.\s|\.$|;|,).)*",
        rf"{_SUBJECT}(?:(?!\.\s|;|\bfor\b|\band (?!`)|{_ACTS}).){{0,90}}?"
        r"\b(?:waits?|waited|waiting(?= (?:for|to|until|behind)\b)|behind|had to wait|(?:was|were) (?:held|blocked))\b",
    )
]
_DENIED = re.compile(r"\b(?:no|not|nor|never|without|neither|isn't)\b[^.,;]{0,25}$", re.I)


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong with a server. All but ``cause`` and ``account`` are patterns; ``cause`` is a sentence for people.

    Names in a program have a case, so patterns have one, too; those of ``mends`` and ``false_claims`` have none.
    ``related`` are places that a report may name without accusing them, such as the line that made a pool.
    """

    cause: str
    account: Account
    named: tuple[str, ...]
    mends: tuple[str, ...]
    holder: tuple[str, ...] = ()
    innocents: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    false_claims: tuple[str, ...] = (*ELSEWHERE, HELD)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the box: its text and its advice, each on one line."""

    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first box of a screen. ``title`` is in its upper border."""

    title: str
    findings: tuple[Finding, ...]
    below: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """``why`` says which rule decided, ``said`` is the verdict in one line."""

    outcome: Outcome
    why: str
    said: str


def near(one: str, other: str, within: int = 80) -> str:
    """A pattern of both in one sentence, in either order, at most ``within`` characters apart."""
    gap = rf"(?:(?!\.\s|;).){{0,{within}}}?"
    return rf"(?:{one}){gap}(?:{other})|(?:{other}){gap}(?:{one})"


def judge(report: str, truth: Truth) -> Judgement:
    """Judges the first screen of ``report``; an empty report was never written."""
    if not report.strip():
        return Judgement("not found", "no report", "no report")
    verdict = read_verdict(report.splitlines()[:LINES])
    accused = [accuse(finding, truth) for finding in verdict.findings]
    if len(accused) == 1 and accused[0] == "nobody":
        accused = [accuse(Finding(verdict.title, ""), truth)]
    said = say(verdict)
    if "innocent" in accused or "false claim" in accused:
        return Judgement("false", "it accuses something innocent", said)
    if "cause" in accused:
        return Judgement(*_weigh(verdict.findings, accused, truth), said)
    if "fine" in accused:
        return Judgement("false", "it says healthy", said)
    if _first(truth.named, _without_victims(verdict.below)) is not None:
        return Judgement("partly", "the cause stands only below the verdict", said)
    return Judgement("not found", "the cause is not named", said)


def _weigh(findings: Sequence[Finding], accused: Sequence[Accused], truth: Truth) -> tuple[Outcome, str]:
    at = accused.index("cause")
    finding = findings[at]
    lacks = []
    if any(not one.startswith("fine") for one in accused[:at]):
        lacks.append("it is not the first finding")
    if not _holds(truth.mends, finding.advice or finding.text, re.I):
        lacks.append("no mend of the right kind")
    if truth.holder and not _holds(truth.holder, f"{finding.text} {finding.advice}"):
        lacks.append("the holder is not named")
    return ("partly", "; ".join(lacks)) if lacks else ("found", "cause and mend are named")


def accuse(finding: Finding, truth: Truth) -> Accused:
    """What the finding accuses: the first thing that its text names and that is no victim."""
    if re.match(rf"\W*healthy\b|\W*{truth.account}\b\W*(?:\w+\W+){{0,3}}?(?:fine|healthy)\b", finding.text, re.I):
        return "fine"
    if re.match(r"\W*(?:time|failures|memory|open)\b\W*(?:fine|healthy)\b", finding.text, re.I):
        return "fine elsewhere"
    text = _without_victims(finding.text)
    kinds: tuple[tuple[tuple[str, ...], Accused, int], ...] = (
        (truth.named, "cause", 0),
        (truth.innocents, "innocent", 0),
        (truth.false_claims, "false claim", re.I),
    )
    firsts = [(at, accused) for patterns, accused, flags in kinds if (at := _first(patterns, text, flags)) is not None]
    if (at := _first_strange_place(text, truth)) is not None:
        firsts.append((at, "innocent"))
    return min(firsts, key=lambda pair: pair[0])[1] if firsts else "nobody"


def _first(patterns: Iterable[str], text: str, flags: int = 0) -> int | None:
    found = (
        match.start()
        for pattern in patterns
        for match in re.finditer(pattern, text, flags)
        if not _DENIED.search(text[: match.start()])
    )
    return min(found, default=None)


def _first_strange_place(text: str, truth: Truth) -> int | None:
    known = (*truth.named, *truth.related)
    return next((place.start() for place in _PLACE.finditer(text) if not _holds(known, place[0])), None)


def _holds(patterns: Iterable[str], text: str, flags: int = 0) -> bool:
    return any(re.search(pattern, text, flags) for pattern in patterns)


def _without_victims(text: str) -> str:
    for victims in _VICTIMS:
        text = victims.sub(lambda match: " " * len(match[0]), text)
    return text


def read_verdict(screen: Sequence[str]) -> Verdict:
    """The first box of the screen; without a box the first paragraph below the first line."""
    tops = [at for at, line in enumerate(screen) if re.match(r"\s*[╭┌+]", line)]
    if not tops:
        rows = list(screen[1:])
        while rows and not rows[0].strip():
            rows.pop(0)
        length = next((at for at, row in enumerate(rows) if not row.strip()), len(rows))
        return Verdict("", _findings(rows[:length]), " ".join(rows[length:]))
    top = tops[0]
    bottom = next((at for at in range(top + 1, len(screen)) if re.match(r"\s*[╰└+]", screen[at])), len(screen))
    title = re.sub(r"[─━═╭╮┌┐+]|-{2,}", " ", screen[top])
    title = re.sub(r"^\W*verdict\b", "", " ".join(title.split()), flags=re.I).strip()
    rows = [re.sub(r"^\s*[│|┃║]|[│|┃║]\s*$", "", row) for row in screen[top + 1 : bottom]]
    return Verdict(title, _findings(rows), "\n".join(screen[bottom + 1 :]))


def _findings(rows: Iterable[str]) -> tuple[Finding, ...]:
    texts: list[list[list[str]]] = []
    for row in rows:
        if not texts or _FINDING.match(row):
            texts.append([[], []])
        arrow = _ADVICE.match(row)
        if arrow:
            texts[-1][1].append("")
        part = 1 if texts[-1][1] else 0
        texts[-1][part].append(row[arrow.end() :].strip() if arrow else row.strip())
    joined = (_ELSEWHERE.sub("", " ".join(filter(None, [*text, "\0", *advice]))) for text, advice in texts)
    parts = (one.partition("\0") for one in joined)
    findings = (Finding(text.strip(), advice.strip()) for text, _, advice in parts)
    return tuple(one for one in findings if one.text or one.advice)


def say(verdict: Verdict, words: int = 22) -> str:
    """The verdict in one line: its title's first word, then how its first finding begins."""
    code = verdict.title.split(" ")[0] if verdict.title else ""
    text = verdict.findings[0].text.lstrip(_BULLETS + " ") if verdict.findings else ""
    all_words = text.split(" ")
    short = " ".join(all_words[:words]) + (" …" if len(all_words) > words else "")
    if short.count("`") % 2:
        short = short.removesuffix(" …") + "` …"
    return f"`{code}`: {short}" if code else short
