"""The URLs of document 003 and the byte counts that any run over them must arrive at.

Restated from the document's specification. Queries double from ``a…z`` until they exceed 1 000 characters
and then start over, so that seven lengths (26 to 1 664) take turns.
"""

from __future__ import annotations

from collections.abc import Iterator

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
HOST = "example.test"
"""Twelve characters: the length that both of the documented totals (51,258,766 and 51,145,360 bytes) imply."""


def paths(count: int, start: int = 0) -> Iterator[str]:
    """Path and query of ``count`` URLs; numbers run on from ``start``, the cycle of lengths starts anew."""
    query = ALPHABET
    for number in range(start, start + count):
        yield f"/anything/{number}?query={query}"
        query = ALPHABET if len(query) // 1000 >= 1 else query + query


def urls(count: int, host: str = HOST) -> Iterator[str]:
    """The URLs of one generator."""
    for path in paths(count):
        yield f"http://{host}{path}"


def encoded_bytes(url: str) -> int:
    """The document's CPU-bound task: each character is encoded for itself."""
    total = 0
    for character in url:
        total += len(character.encode())
    return total


def expected_bytes(count: int, threads: int = 1, host_length: int = len(HOST)) -> int:
    """What all generators together must count: by arithmetic, without encoding anything.

    Every thread has a generator of its own, of ``count // threads`` URLs that start at number 0.
    """
    return threads * _expected(count // threads, host_length)


def _expected(count: int, host_length: int) -> int:
    fixed = len("http://") + host_length + len("/anything/") + len("?query=")
    lengths = [len(ALPHABET) << doubling for doubling in range(7)]
    rounds, rest = divmod(count, len(lengths))
    return count * fixed + _digits_below(count) + rounds * sum(lengths) + sum(lengths[:rest])


def _digits_below(count: int) -> int:
    """Digits of all of 0 … count - 1 together."""
    if count <= 0:
        return 0
    total, width, low = 1, 1, 1  # the 0
    while low < count:
        high = min(count, low * 10)
        total += width * (high - low)
        width, low = width + 1, low * 10
    return total
