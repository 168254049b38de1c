"""Results of judged runs: kept as JSON, and as a table in docs/findings.md with a row for each commit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

from tools.compatibility import table
from tools.counterfactual.bare import Truth
from tools.counterfactual.draw import draw
from tools.counterfactual.judge import Judgement, Outcome, Verdict, judge
from tools.counterfactual.kind import all_kinds
from tools.interpreters import ROOT

KEPT = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "findings.md"
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
HEADS = [
    *("date", "commit", "seeds", "right", "lesser", "vague", "false", "absolved", "broken", "healthy, right"),
    *("mend named", "holder named", "only `long-wait`", "explained beside saved"),
]


def interval(hits: int, of: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a share. Source: Wilson (1927), JASA 22:209-212."""
    if not of:
        return 0.0, 1.0
    z, share = 1.959964, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, of: int) -> str:
    if not of:
        return "none"
    low, high = interval(hits, of)
    return f"{hits} of {of}: {hits / of:.0%} [{low:.0%}–{high:.0%}]".replace("%–", "–").replace("%]", " %]")


@dataclass(frozen=True, slots=True)
class Row:
    """One series of judged runs. ``judged`` has each seed's judgement, and whether the seed is sick."""

    date: str
    commit: str
    judged: tuple[tuple[Judgement, bool], ...]

    def cells(self) -> list[object]:
        """Returns the row of the table; rights, wrongs and absolved are of all seeds, sick or healthy."""
        count = Counter(one.outcome for one, _ in self.judged)
        healthy = [one for one, sick in self.judged if not sick and one.outcome != "broken"]
        right = [one for one, sick in self.judged if sick and one.outcome == "right"]
        with_holder = [one for one in right if one.holder is not None]
        return [
            self.date,
            self.commit,
            len(self.judged),
            *(share(count[outcome], len(self.judged)) for outcome in OUTCOMES),
            share(sum(one.outcome == "right" for one in healthy), len(healthy)),
            share(sum(bool(one.mend) for one in right), len(right)),
            share(sum(bool(one.holder) for one in with_holder), len(with_holder)),
            share(sum(one.unnamed for one in right), len(right)),
            _explained(right),
        ]


def _explained(right: Iterable[Judgement]) -> str:
    """How far the shares that right verdicts claim are from what the removal of the named cause saves."""
    off = [abs(one.explains - one.saves) for one in right if one.explains is not None and one.saves is not None]
    if not off:
        return "none says a share"
    near = sum(each <= 0.15 for each in off)
    return f"median {median(off):.0%} apart, {near} of {len(off)} within 15 %".replace("% a", " % a")


def read_results(path: Path = KEPT) -> dict[str, Any]:
    """Returns what was kept: `rows` of earlier series, and `last`, the newest series with every seed."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found
    return {"rows": [], "last": {"commit": "", "date": "", "seeds": {}}}


def write_results(results: Mapping[str, Any], path: Path = KEPT) -> None:
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")


def judged(last: Mapping[str, Any], truths: Mapping[str, Truth]) -> dict[int, tuple[Judgement, bool]]:
    """Judges every kept run of a series, by seed; with each, whether its server is sick."""
    return {
        int(seed): (
            judge(draw(int(seed)), truths[seed], Verdict(**last["seeds"][seed]["verdict"])),
            truths[seed].is_sick,
        )
        for seed in sorted(last["seeds"], key=int)
    }


def row_of(last: Mapping[str, Any], truths: Mapping[str, Truth]) -> Row:
    return Row(last["date"], last["commit"], tuple(judged(last, truths).values()))


def by_kind(last: Mapping[str, Any], truths: Mapping[str, Truth]) -> list[str]:
    """Returns a table of all kinds: how often each was the best removal of a sick seed, and how that was judged."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in all_kinds()}
    for seed, (judgement, is_sick) in judged(last, truths).items():
        if is_sick:
            truth = truths[str(seed)]
            counts[draw(seed).causes[truth.savings.index(truth.best)].kind][judgement.outcome] += 1
    rows: list[list[object]] = [
        [f"`{name}`", kind.fault, kind.cites, sum(count.values()) or "", *(count[one] or "" for one in OUTCOMES)]
        for (name, kind), count in zip(all_kinds().items(), counts.values(), strict=True)
    ]
    return table(["kind", "fault", "reported in", "best removal of", *OUTCOMES], rows)
