"""The URLs of document 003 and the byte counts that any run over them must arrive at.

Restated from the document's specification. Queries double from ``a…z`` until they exceed 1 000 characters
and then start over, so that seven lengths (26 to 1 664) take turns.
"""

from __future__ import annotations

from collections.abc import Iterator

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
HOST = "example.test"
"""Twelve characters: the length that both of the documented totals (51,258,766 and 51,145,360 bytes) imply."""


def paths(count: int) -> Iterator[str]:
    """Path and query of ``count`` URLs."""
    query = ALPHABET
    for number in range(count):
        yield f"/anything/{number}?query={query}"
        query = ALPHABET if len(query) // 1000 >= 1 else query + query


def urls(count: int) -> Iterator[str]:
    """The URLs of one generator."""
    for path in paths(count):
        yield f"http://{HOST}{path}"


def encoded_bytes(url: str) -> int:
    """The document's CPU-bound task: each character is encoded for itself."""
    total = 0
    for character in url:
        total += len(character.encode())
    return total


def expected_bytes(count: int, threads: int = 1) -> int:
    """What all generators together must count: by arithmetic, without encoding anything.

    Every thread has a generator of its own, of ``count // threads`` URLs that start at number 0.
    """
    each = count // threads
    fixed = len(f"http://{HOST}/anything/?query=")
    digits: int = each + sum(each - 10**power for power in range(1, len(str(each))))  # of all of 0 … each - 1 together
    lengths = [len(ALPHABET) << doubling for doubling in range(7)]
    rounds, rest = divmod(each, len(lengths))
    return threads * (each * fixed + digits + rounds * sum(lengths) + sum(lengths[:rest]))
