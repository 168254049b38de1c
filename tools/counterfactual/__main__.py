"""`make counterfactual`: how often the verdict names what costs the clients most, on servers drawn from seeds.

    python -m tools.counterfactual check KIND …    each kind alone: what its mend saves, on each SDK and transport
    python -m tools.counterfactual show SEED       the server's source, its truth marked
    python -m tools.counterfactual bare 2-100      measures what is not yet known of those seeds, without the probe
    python -m tools.counterfactual probe 2-100     runs them probed, and judges; goes on where it was stopped
    python -m tools.counterfactual table           writes the last series into docs/findings.md
    python -m tools.counterfactual fixed           the fixed seeds, probed: fails if one is wrong twice

Seeds are given as `2-100`, `4`, `2-100:2` (every second), several with commas.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.page import filled
from tools.compatibility import table
from tools.counterfactual import bare, tables
from tools.counterfactual.draw import Server, alone, draw
from tools.counterfactual.drive import Broken, backend, run
from tools.counterfactual.judge import judge
from tools.counterfactual.kind import Kind, all_innocents, all_kinds
from tools.counterfactual.probed import Probed, commit, plain, probe

ENOUGH_ALONE = 0.3
FIXED = Path(__file__).with_name("fixed.txt")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.counterfactual", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=("check", "show", "bare", "probe", "table", "fixed"))
    parser.add_argument("of", nargs="*", metavar="SEEDS or KIND")
    parser.add_argument("--sdk", help="check: this SDK only")
    parser.add_argument("--transport", help="check: this transport only")
    parser.add_argument("--probed", action="store_true", help="check: say what the probe's verdict is, too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="probe: keep source and console report there")
    parser.add_argument("--again", action="store_true", help="probe: run seeds again that this series has already")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no seed after that")
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    match options.what:
        case "check":
            return _check(options)
        case "show":
            print(_shown(draw(int(options.of[0]))))
        case "table":
            _write_table()
        case "fixed":
            return _fixed()
        case "bare":
            with backend() as service:
                for seed in _seeds(options.of, until):
                    _truth(seed, service)
        case "probe":
            with backend() as service:
                _probe(options, until, service)
    return 0


def _seeds(said: list[str], until: float) -> Iterator[int]:
    for item in ",".join(said).split(","):
        span, _, step = item.partition(":")
        first, _, last = span.partition("-")
        for seed in range(int(first), int(last or first) + 1, int(step or 1)):
            if time.monotonic() < until:
                yield seed


def _truth(seed: int, service: str) -> bare.Truth:
    """Returns what is known of a seed, after measuring it if its server is another one than it was."""
    server, truths = draw(seed), bare.read_truths()
    known = truths.get(server.seed)
    if known is not None and known.digest == server.digest and not known.broken:
        return known
    kinds = all_kinds()
    truth = bare.measure(server, service, [kinds[cause.kind].measure == "cpu" for cause in server.causes])
    bare.write_truths({**bare.read_truths(), server.seed: truth})
    saved = ", ".join(
        f"{cause.kind} {share:.0%}" for cause, share in zip(server.causes, truth.savings, strict=not truth.broken)
    )
    waited = ", ".join(f"{each:.1f}" for each in truth.waited_s)
    load = os.getloadavg()[0]
    print(
        f"{time.strftime('%H:%M:%S')} seed {seed} {server.sdk} {server.transport}: {waited} s; saved by removal:"
        f" {saved or 'nothing'} {truth.broken} (load {load:.1f})",
        flush=True,
    )
    return truth


def _probe(options: argparse.Namespace, until: float, service: str) -> None:
    results = tables.read_results()
    last, now = results["last"], commit()
    if last["commit"] != now:
        last = results["last"] = {"commit": now, "date": time.strftime("%Y-%m-%d"), "seeds": {}}
    for seed in _seeds(options.of, until):
        if str(seed) in last["seeds"] and not options.again:
            continue
        server, truth = draw(seed), _truth(seed, service)
        probed = probe(server, service)
        last["seeds"][str(seed)] = plain(probed)
        tables.write_results(results)
        print(_line(server, truth, probed), flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{seed}.py").write_text(_shown(server, truth), "utf-8")
            (options.keep / f"{seed}.txt").write_text(probed.report, "utf-8")
    row = tables.row_of(last, bare.read_truths())
    for head, cell in zip(tables.HEADS, row.cells(), strict=True):
        print(f"{head}: {cell}")


def _line(server: Server, truth: bare.Truth, probed: Probed) -> str:
    verdict = probed.verdict
    one = judge(server, truth, verdict)
    causes = "+".join(cause.kind for cause in server.causes) or "healthy"
    return (
        f"{server.seed} {server.sdk} {server.transport} {causes}: {one.outcome.upper()} {verdict.code}"
        f" ({verdict.severity}) names {', '.join(one.named) or 'no cause'}; mend {one.mend}, holder {one.holder};"
        f" clients {probed.waited_s} s, report {probed.reported_s} s: {verdict.sentence[:160]}"
    )


def _shown(server: Server, truth: bare.Truth | None = None) -> str:
    """Returns the source with every cause in it; the causes' lines are marked, and their savings stand above."""
    truth = truth or bare.read_truths().get(server.seed)
    known = truth is not None and truth.digest == server.digest and not truth.broken
    lines = [f"# seed {server.seed}: {server.sdk}, {server.transport}"]
    for number, cause in enumerate(server.causes):
        kind = all_kinds()[cause.kind]
        saved = f"; its removal saves {truth.savings[number]:.0%}" if truth and known else ""
        lines.append(f"# cause {number}: {kind.fault} Mend: {kind.mend}{saved}")
        lines.append(f"#   things: {cause.things}, holders: {cause.holders}")
    for number, line in enumerate(server.sources[None].split("\n"), 1):
        marks = [f"cause {n}" for n, cause in enumerate(server.causes) if number in cause.lines]
        marks += [f"holder of {n}" for n, cause in enumerate(server.causes) if number in cause.holder_lines]
        lines.append(f"{number:4} {line}" + (f"    # <-- {', '.join(marks)}" if marks else ""))
    lines += [f"# {caller}" for caller in server.callers]
    return "\n".join(lines) + "\n"


def _check(options: argparse.Namespace) -> int:
    """Runs kinds alone. Exits with 1 if a mend saves too little, or if the answers of the two forms differ."""
    known = {**all_kinds(), **all_innocents()}
    wrong = 0
    with backend() as service:
        for name in options.of or known:
            if name not in known:
                sys.exit(f"no kind {name!r}; there are: {', '.join(known)}")
            kind = known[name]
            for sdk in kind.sdks if options.sdk is None else (options.sdk,):
                for transport in kind.transports if options.transport is None else (options.transport,):
                    wrong += _check_alone(kind, sdk, transport, service, probed=options.probed)
    return 1 if wrong else 0


def _check_alone(kind: Kind, sdk: str, transport: str, service: str, *, probed: bool) -> bool:
    server = alone(kind, sdk, transport, random.randrange(1000))
    head = f"{kind.name} {sdk} {transport}:"
    try:
        sick = run(server, server.sources[None], service)
        if not kind.mend:
            print(f"{head} {sick.calls} calls, waited {sick.waited_s:.1f} s, {sick.failed} failed")
            return bool(sick.failed)
        mended = run(server, server.sources[0], service)
    except Broken as exc:
        print(f"{head} BROKEN {exc}", flush=True)
        return True
    saved = 1 - (mended.cpu_s / sick.cpu_s if kind.measure == "cpu" else mended.waited_s / sick.waited_s)
    other = bare.difference(sick, mended)
    failures = [answer for answer in mended.answers.values() if answer.startswith("failed")]
    is_wrong = saved < ENOUGH_ALONE or bool(other) or bool(failures) or mended.given_up > 0
    print(
        f"{head} sick {sick.waited_s:.1f} s of waiting (start {sick.start_s:.1f}), {sick.calls} calls, {sick.failed}"
        f" failed, {sick.given_up} given up, CPU {sick.cpu_s:.1f} s; mended {mended.waited_s:.1f} s, {mended.failed}"
        f" failed, {mended.given_up} given up, CPU {mended.cpu_s:.1f} s; SAVED {saved:.0%}"
        f"{' DIFFERENT ' + other if other else ''}{' ' + failures[0] if failures else ''}"
        f"{' WRONG' if is_wrong else ''}",
        flush=True,
    )
    if probed:
        truth = bare.Truth(
            server.digest,
            (sick.waited_s,),
            ((mended.waited_s,),),
            (sick.cpu_s,),
            ((mended.cpu_s,),),
            (kind.measure == "cpu",),
        )
        print("   ", _line(server, truth, probe(server, service)), flush=True)
    return is_wrong


def _write_table() -> None:
    results, truths = tables.read_results(), bare.read_truths()
    row = tables.row_of(results["last"], truths).cells()
    results["rows"] = [one for one in results["rows"] if one[1] != row[1]] + [row]
    tables.write_results(results)
    lines = [*table(tables.HEADS, results["rows"]), "", *tables.by_kind(results["last"], truths)]
    page = tables.PAGE.read_text("utf-8")
    tables.PAGE.write_text(filled(page, {"counterfactual": "\n".join(lines)}), "utf-8")


def _fixed() -> int:
    """Probes the fixed seeds against their stored truths; a seed that is wrong is run once more."""
    wrong, seeds = 0, [int(line) for line in FIXED.read_text().split()]
    truths = bare.read_truths()
    with backend() as service:
        for seed in seeds:
            server = draw(seed)
            truth = truths[server.seed]
            if truth.digest != server.digest:
                sys.exit(f"the server of seed {seed} has changed: `python -m tools.counterfactual bare {seed}` first")
            probed = probe(server, service)
            if judge(server, truth, probed.verdict).outcome != "right":
                print("again:", _line(server, truth, probed), flush=True)
                probed = probe(server, service)
            wrong += judge(server, truth, probed.verdict).outcome != "right"
            print(_line(server, truth, probed), flush=True)
    print(f"fixed seeds: {len(seeds) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
