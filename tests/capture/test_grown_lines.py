from __future__ import annotations

from mcp_probe.capture.grown_lines import (
    FIRST,
    REST,
    Held,
    Line,
    Lines,
    Look,
    Wanted,
    count_line,
    latest_of,
    look_of,
    top_lines,
)

OWN, LIBRARY, SDK = "/srv/server.py", "/venv/site-packages/httpx/_client.py", "/venv/site-packages/mcp/session.py"
IMPORTED = "/venv/site-packages/attr/_make.py"


def told(lines: dict[Line, Held]) -> list[str]:
    return [file for (_, file, _), _ in top_lines(lines)]


def test_a_line_of_the_users_comes_before_the_library_that_it_calls_and_both_before_the_sdk() -> None:
    lines = {
        ("add", SDK, 3): Held([450, 450], 9),
        ("add", LIBRARY, 2): Held([400, 400], 8),
        ("add", OWN, 1): Held([50, 50], 1),
    }
    assert told(lines) == [OWN, LIBRARY, SDK]
    lines["add", OWN, 1] = Held([4, 5], 1)
    assert told(lines) == [LIBRARY, OWN, SDK], "what is next to nothing is not the cause"


def test_what_one_call_imports_comes_after_what_every_call_keeps_however_much_it_is() -> None:
    """A client that each call leaves open, and the libraries that the first one in the newer half of them imports."""
    lines: dict[Line, Held] = {}
    for call in range(100):
        count_line(lines, ("fetch", OWN, 7), 24, 1, share=call // 50)
        count_line(lines, ("fetch", LIBRARY, 2), 4_000, 12, share=call // 50)
        count_line(lines, ("fetch", SDK, 3), 48, 1, share=call // 50)
    count_line(lines, ("fetch", IMPORTED, 785), 5_800_000, 60_000, share=1)
    assert told(lines) == [LIBRARY, OWN, SDK, IMPORTED]
    count_line(lines, ("fetch", OWN, 7), 90_000, 100, share=0)
    count_line(lines, ("fetch", OWN, 7), 90_000, 100, share=1)
    (first, held), *_ = top_lines(lines)
    assert first == ("fetch", OWN, 7)
    assert (held.bytes, held.blocks) == (100 * 24 + 180_000, 300)


def test_what_one_call_set_up_in_the_servers_own_code_is_not_the_cause_either() -> None:
    lines = {("fetch", OWN, 7): Held([0, 5_800_000], 60_000), ("fetch", LIBRARY, 2): Held([90, 90], 9)}
    assert told(lines) == [LIBRARY, OWN]


def test_lines_whose_calls_have_no_order_stand_by_their_bytes() -> None:
    lines: dict[Line, Held] = {}
    for file, size in ((OWN, 101), (LIBRARY, 33), ("/srv/other.py", 303), ("/srv/gone.py", -7)):
        count_line(lines, ("", file, 1), size, 1)
    assert told(lines) == ["/srv/other.py", OWN, LIBRARY]
    assert [held.bytes for _, held in top_lines(lines)] == [303, 101, 33]


def test_each_operation_has_its_own_five_lines() -> None:
    lines = {(name, LIBRARY, number): Held([number, number], 1) for name in ("add", "sum") for number in range(1, 9)}
    assert [line for line, _ in top_lines(lines) if line[0] == "add"] == [("add", LIBRARY, n) for n in (8, 7, 6, 5, 4)]
    assert len(list(top_lines(lines))) == 10


def test_a_look_tells_of_the_calls_whose_blocks_it_has_all_seen() -> None:
    wanted = Wanted(calls=200, sampled=32, whole=188)
    first: Lines = {("add", OWN, 7): Held([100, 200], 3)}
    rest: Lines = {("add", OWN, 7): Held([10, 20], 5), ("add", LIBRARY, 2): Held([1, 1], 2)}
    both = {("add", OWN, 7): Held([110, 220], 8), ("add", LIBRARY, 2): Held([1, 1], 2)}
    assert look_of(wanted, {FIRST: first, REST: rest}, []) == Look(200, 188, both)
    assert look_of(wanted, {FIRST: first, REST: rest}, [REST]) == Look(200, 32, first)
    assert look_of(wanted, {FIRST: first}, [FIRST, REST]) == Look(200, 0, first)
    assert first == {("add", OWN, 7): Held([100, 200], 3)}, "what one stage has seen is not changed by another"


def test_a_look_that_has_seen_nothing_whole_does_not_replace_an_earlier_one_until_that_is_too_old() -> None:
    earlier, cut, sample = Look(100, 94, {}), Look(200, 0, {}), Look(200, 32, {})
    assert latest_of(None, cut) is cut
    assert latest_of(earlier, cut) is earlier
    assert latest_of(earlier, sample) is sample
    assert latest_of(earlier, Look(201, 0, {})).calls == 201
