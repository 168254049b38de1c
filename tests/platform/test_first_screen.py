"""The judge of first screens: a right one, wrong ones, a healthy one, and one that calls the right line a victim."""

from __future__ import annotations

import pytest

from tools.field.first_screen import ELSEWHERE, HOST, LINES, Outcome, Truth, judge, near

LOCK = Truth(
    cause="a thread holds LOCK, and `remember` takes it on the loop",
    account="time",
    named=(r"\bLOCK\b", r"server\.py:31\b"),
    mends=(r"hold the lock", r"worker thread"),
    holder=(r"\bconsolidator\b", r"server\.py:19\b"),
    innocents=(r"`ping`",),
    false_claims=ELSEWHERE,
)
RIGHT = """\
notes · 133 requests in 9.9 s · no errors · clients waited ≥61.3 s in all

╭─ Verdict ────────────────────────────────────────────── blocking-call · critical ─╮
│ ● `remember` blocked the event loop for up to 1.2 s at server.py:31, waiting for  │
│   the lock `LOCK` that the thread `consolidator` held at server.py:19, and made   │
│   100 other calls of `ping` wait 55 s.                                            │
│ → Do not hold the lock while the model is asked.                                  │
│   Also found, below: gc-pause.                                                    │
╰───────────────────────────────────────────────────────────────────────────────────╯

Where the time goes
"""


def screen(*rows: str, title: str = "blocking-call · critical", below: str = "") -> str:
    body = "\n".join(f"│ {row:82} │" for row in rows)
    return f"notes · 3 requests\n\n╭─ Verdict ─── {title} ─╮\n{body}\n╰────╯\n\n{below}\n"


def test_the_right_line_with_its_holder_and_a_mend_is_found() -> None:
    judgement = judge(RIGHT, LOCK)
    assert (judgement.outcome, judgement.said.partition(":")[0]) == ("found", "`blocking-call`")


@pytest.mark.parametrize(
    "row",
    [
        "● 84 % of the waiting: `ping` behind `remember`, whose step at server.py:31 waits for consolidator's lock.",
        "● The thread consolidator kept `LOCK` for 1.2 s at a time (server.py:19); who waited: `ping`, `remember`.",
        "● `ping` and `remember` waited 55 s for `LOCK`, which consolidator held.",
        "time  critical: `remember` waits at server.py:31; consolidator holds what it waits for.",
        "● Not the host: `remember` stood at server.py:31 while consolidator had the lock.",
    ],
)
def test_other_words_for_the_same_cause_are_found(row: str) -> None:
    assert judge(screen(row, "→ Take it in a worker thread."), LOCK).outcome == "found"


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ("● `ping` computed for 1.2 s at server.py:36 and made `remember` at server.py:31 wait.", "false"),
        ("● `remember` at server.py:31 waited 1.2 s for `ping`, which computed.", "false"),
        ("● `ping` blocked the event loop; who waited for it: `remember` at server.py:31.", "false"),
        ("● `remember` blocked the event loop at server.py:99 for 1.2 s.", "false"),
        ("● The event loop waited 3 s for a CPU of the host.", "false"),
        ("● The first call of `remember` took 1.2 s.", "false"),
        ("● `remember` blocked the event loop for up to 1.2 s; the cause is not known.", "not found"),
        ("● The thread consolidator runs most.", "not found"),
        ("● `remember` waits for some lock of consolidator.", "not found"),
    ],
)
def test_who_is_accused_decides_and_not_which_lines_are_named(row: str, outcome: Outcome) -> None:
    assert judge(screen(row, "→ Take it in a worker thread."), LOCK).outcome == outcome


@pytest.mark.parametrize("text", ["Healthy: 133 requests in 10 s, and nothing held them up.", "time  fine"])
def test_a_healthy_verdict_is_false_whatever_stands_below(text: str) -> None:
    judgement = judge(screen(f"● {text}", title="healthy", below="remember ×33 server.py:31 LOCK consolidator"), LOCK)
    assert (judgement.outcome, judgement.why) == ("false", "it says healthy")


def test_fine_of_another_account_is_no_fault_and_fine_of_its_own_is_one() -> None:
    named = ["memory  warn: `remember` at server.py:31 keeps LOCK of consolidator.", "→ Do not hold the lock."]
    assert judge(screen("open  fine", *named, title="memory"), LOCK).outcome == "found"
    assert judge(screen("time  fine", *named, title="memory"), LOCK).outcome == "found"
    assert judge(screen("time  fine", "open  fine", "memory  fine", title=""), LOCK).outcome == "false"
    assert judge(screen("open  fine", "memory  fine", title=""), LOCK).outcome == "not found"


def test_without_mend_or_holder_or_below_another_finding_it_is_partly() -> None:
    right = "● `remember` blocked the event loop at server.py:31, for a lock that consolidator held."
    mend = "→ Take it in a worker thread."
    assert judge(screen(right, "→ Move the work into a process pool."), LOCK).why == "no mend of the right kind"
    assert judge(screen(right.replace("consolidator", "somebody"), mend), LOCK).why == "the holder is not named"
    assert judge(screen("● Calls are slow.", "→ Wait.", right, mend), LOCK).why == "it is not the first finding"
    assert judge(screen("● `ping` is slow.", "→ Wait.", right, mend), LOCK).outcome == "false"


def test_a_cause_below_the_verdict_counts_only_on_the_first_screen() -> None:
    unsure = screen("● Something is slow.", below="remember  ×33  server.py:31")
    assert judge(unsure, LOCK).outcome == "partly"
    assert judge(unsure.replace("remember  ×33", "\n" * LINES + "remember"), LOCK).outcome == "not found"


def test_a_title_alone_accuses_where_the_text_names_nobody() -> None:
    assert judge(screen("● It had no CPU for 3 s.", title="host-pressure · warning"), LOCK).outcome == "false"
    named = "● `remember` at server.py:31 had no CPU."
    assert judge(screen(named, title="host-pressure · warning"), LOCK).outcome == "partly"


def test_a_title_of_a_step_that_holds_the_loop_is_false_where_none_does() -> None:
    leak = Truth("", "memory", (r"\bHISTORY\b",), (r"\bbound",))
    text = "● `note` computed on the event loop for 20 ms."
    assert judge(screen(text, title="cpu-bound-step · warning"), leak).outcome == "false"
    assert judge(screen(text, title="something · warning"), leak).outcome == "not found"


def test_a_row_that_begins_with_a_word_like_an_account_is_no_new_finding() -> None:
    rows = ("● `remember` blocked the event loop for all of the", "  time at server.py:31; consolidator held the lock.")
    assert judge(screen(*rows, "→ Take it in a worker thread."), LOCK).outcome == "found"


def test_a_report_in_ascii_and_one_without_a_box_are_read_too() -> None:
    plain = RIGHT
    for fancy, ascii_ in zip("╭╮╰╯─│●→", "++++-|*>", strict=True):
        plain = plain.replace(fancy, ascii_)
    assert judge(plain.replace("| > Do", "| -> Do"), LOCK).outcome == "found"
    loose = "notes\n\n`remember` stood at server.py:31 for a lock of consolidator: hold the lock shorter.\n\nmore\n"
    assert judge(loose, LOCK).outcome == "found"


def test_no_report_finds_nothing() -> None:
    assert (judge("", LOCK).outcome, judge("", LOCK).said) == ("not found", "no report")


def test_near_takes_both_orders_within_one_sentence() -> None:
    truth = Truth("", "open", (near("sessions?", "open|closed"),), ("idle",), false_claims=(HOST,))
    for text in ("600 sessions were never closed", "open: 600 sessions"):
        assert judge(screen(f"● {text}.", "→ An idle time-out."), truth).outcome == "found"
    assert judge(screen("● 600 sessions. The file is open.", "→ An idle time-out."), truth).outcome == "not found"
