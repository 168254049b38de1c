"""Duplicates are sought by a full SequenceMatcher ratio of every pair of notes.

cites: seojoonkim/memkraft#33
state: thread running
sdks: mcp2 fastmcp3 fastmcp4
transports: stdio http
names: NOTES likeness count_duplicates TOOL
numbers: AMOUNT=75..85
load: TOOL callers 1 calls 6..7
mend: compute-less
thing: count_duplicates or likeness or SequenceMatcher
"""

from difflib import SequenceMatcher

WORDS = "the of harbour meter claim grant lesson road well tide crate vessel form shift badge quote".split()
NOTES = [
    " ".join(WORDS[(number * number + step * (number + 3)) % len(WORDS)] for step in range(6 + number % 9))
    for number in range(AMOUNT)
]


def likeness(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other)
    #: mended
    if matcher.real_quick_ratio() < 0.85 or matcher.quick_ratio() < 0.85:
        return 0.0
    #: end
    return matcher.ratio()  #!


def count_duplicates(notes: list[str]) -> int:
    return sum(
        likeness(one, other) >= 0.85  #!
        for number, one in enumerate(notes)
        for other in notes[:number]
    )


@server.tool()
def TOOL(text: str) -> str:
    """Counts the notes that are duplicates of others, a new one among them."""
    return f"{text}: {count_duplicates([*NOTES, text])}"  #!
