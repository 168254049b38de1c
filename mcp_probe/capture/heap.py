"""The living objects that the collector knows, taken so that no other thread is harmed.

Before CPython 3.14 whoever holds a tuple that another thread is about to finish makes ``tuple(generator)`` fail there
with SystemError (Objects/tupleobject.c, ``_PyTuple_Resize``); from 3.14 on a tuple is made once its items are known.
No Python code runs here between the collector's list and its end, since all that takes part is written in C: other
threads go on only once the tuples are let go. Before 3.12 a new iterator may begin a collection, and whoever asked to
be told of these (``gc.callbacks``) is Python code, so none begins meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, islice, repeat, tee
from operator import is_not
from typing import Any, TypeVar

Item = TypeVar("Item")


def objects() -> list[Any]:
    """Each living object that the collector tracks and that is no tuple."""
    chosen, typed, cleared = tee(_lists(), 3)
    kinds = map(type, chain.from_iterable(typed))
    found = compress(chain.from_iterable(chosen), map(is_not, kinds, repeat(tuple)))
    # The list has what refers to it in it, so it would stay.
    return _without_collection(chain(found, islice(map(list.clear, cleared), 1, 1)))


def types() -> list[type]:
    """The type of each living object that the collector tracks, tuples among them."""
    return _without_collection(map(type, chain.from_iterable(_lists())))


def _lists() -> Iterator[list[Any]]:
    """The collector's one list, asked for once it is taken."""
    return islice(_answers([gc.get_objects]), 1)


def _without_collection(items: Iterable[Item]) -> list[Item]:
    """``items`` in a list. The collector is off meanwhile and then as it was; no other thread sees that."""
    restore: list[Callable[[], Any]] = []
    then = (gc.isenabled, gc.enable)
    before: Iterator[Any] = chain(
        map(restore.append, map(then.__getitem__, _answers([gc.isenabled]))), _answers([gc.disable])
    )
    try:
        return list(chain(islice(before, 2, 2), items, islice(_answers(restore), 1, 1)))
    except BaseException:
        for back in restore:
            back()
        raise


def _answers(functions: Iterable[Callable[[], Item]]) -> Iterator[Item]:
    """What each of ``functions`` returns, called once it is asked for."""
    return map(next, map(iter, functions, repeat(object())))
