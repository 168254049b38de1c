"""The living objects that the collector knows, taken so that no other thread is harmed.

Before CPython 3.14 whoever holds a tuple that another thread is about to finish makes ``tuple(generator)`` fail there
with SystemError (Objects/tupleobject.c, ``_PyTuple_Resize``); from 3.14 on a tuple is made once its items are known.
No Python code runs here between the collector's list and its end, since all that takes part is written in C: other
threads go on only once the tuples are let go.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress, islice, repeat, tee
from operator import is_not
from typing import Any


def objects() -> list[Any]:
    """Each living object that the collector tracks and that is no tuple."""
    chosen, typed, cleared = tee(_lists(), 3)
    kinds = map(type, chain.from_iterable(typed))
    found = compress(chain.from_iterable(chosen), map(is_not, kinds, repeat(tuple)))
    # The list has what refers to it in it, so it would stay.
    taken = list(chain(found, map(list.clear, cleared)))
    taken.pop()
    return taken


def types() -> list[type]:
    """The type of each living object that the collector tracks, tuples among them."""
    return list(map(type, chain.from_iterable(_lists())))


def _lists() -> Iterator[list[Any]]:
    """The collector's one list, asked for once it is taken."""
    return islice(iter(gc.get_objects, None), 1)
