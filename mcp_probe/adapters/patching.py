"""Replacing attributes of other people's objects, and putting them back.

Invariants: the original is restored by identity; where somebody has wrapped over ours meanwhile, we
leave theirs alone and say so (ours is inert by then: every replacement checks that its session
still lives); an attribute that only a class had is deleted from the instance, not set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(slots=True)
class _Patch:
    owner: Any
    name: str
    before: Any
    ours: Any


class Patches:
    """A set of replacements that belong together and are undone together, last first."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []

    def replace(self, owner: Any, name: str, ours: Any) -> None:
        """Set ``owner.name`` to ``ours``, remembering what stood in its own ``__dict__``."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, ours)
        self._patches.append(_Patch(owner, name, before, vars(owner)[name]))

    def restore(self) -> list[str]:
        """Undo all of it. Returns a sentence for each attribute that could not be put back."""
        stuck = []
        while self._patches:
            patch = self._patches.pop()
            current = vars(patch.owner).get(patch.name, _ABSENT)
            if current is not patch.ours:
                if current is not patch.before:
                    stuck.append(
                        f"{_label(patch.owner)}.{patch.name} was wrapped by somebody else after us: left as it is, "
                        "our part of it now passes through"
                    )
            elif patch.before is _ABSENT:
                delattr(patch.owner, patch.name)
            else:
                setattr(patch.owner, patch.name, patch.before)
        return stuck


def _label(owner: Any) -> str:
    return getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or type(owner).__name__
