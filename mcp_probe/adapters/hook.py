"""Hooks: replacing attributes of other people's objects, guarding what runs there, and putting them back.

Invariants: a wrapper calls the original and returns what it returned. On an instance that is the method that its class
has at that moment: what others patch on the class after us takes hold as without us. The original is restored by
identity. If somebody has wrapped our wrapper meanwhile, theirs stays, and ours passes calls on. An attribute that only
a class had is deleted from the instance, not set. Once a hook was restored it installs nothing any more. No patch keeps
the object alive that it was made on, unless that is a class or a module, or allows no weak reference.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import update_wrapper, wraps
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet, ref

from mcp_probe.capture.guard import Guard, guarded

__all__ = ["Declared", "Hook", "declared", "guarded"]

_ABSENT = object()
PATCHING = threading.RLock()
"""Held while attributes are set: hooks may be restored on any thread while a loop's own installs some."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PATCHING._at_fork_reinit)  # type: ignore[attr-defined]

_hooks: WeakSet[Hook] = WeakSet()


class Faults(Protocol):
    """Whoever is told of a hook's faults: the hub."""

    def fail(self, hook: str, exc: Exception) -> None:
        """``hook`` has raised ``exc`` and is off."""


class Declared(NamedTuple):
    """One attribute that is ours now: ``vars(owner)[name] is ours``."""

    hook: str
    owner: Any
    name: str
    ours: Any


class _Patch:
    __slots__ = ("before", "name", "ours", "owner")

    def __init__(self, owner: Any, name: str, before: Any, ours: Any) -> None:
        lasting = _is_lasting(owner)
        self.owner = _reference(owner, lasting)
        self.name = name
        self.before = before
        self.ours = _reference(ours, lasting)


class Inherited:
    """``owner.name`` as the class of ``owner`` has it when this is called. ``found`` is what it was at first."""

    def __init__(self, owner: Any, name: str, found: Any) -> None:
        update_wrapper(self, found)
        self.found = found
        self._owner = owner
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner, name = self._owner, self._name
        kind = type(owner)
        for one in kind.__mro__:
            if name in vars(one):
                return vars(one)[name].__get__(owner, kind)(*args, **kwargs)
        return self.found(*args, **kwargs)


def _inherited(owner: Any, name: str) -> Any:
    found = getattr(owner, name)
    return Inherited(owner, name, found) if getattr(found, "__self__", None) is owner else found


class Hook(Guard):
    """One hook of ours: what it has replaced, and whether it works. ``off`` is called at each of its faults."""

    __slots__ = ("_patches", "_restored")

    def __init__(self, hub: Faults, name: str, off: Callable[[], None] | None = None) -> None:
        super().__init__(name, hub.fail, off)
        self._patches: list[_Patch] = []
        self._restored = False
        with PATCHING:
            _hooks.add(self)

    def wrap(
        self,
        owner: Any,
        name: str,
        *,
        before: Callable[..., Any] | None = None,
        after: Callable[[Any, Any, BaseException | None], object] | None = None,
    ) -> None:
        """Call ``before`` and ``after`` around ``owner.name``; see :meth:`around`."""
        self.replace(owner, name, lambda original: self.around(original, before=before, after=after))

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set ``owner.name`` to ``make(original)``; class methods and static methods stay what they are.

        Raises: AttributeError or TypeError where ``owner`` has no such name, or does not allow it to be set.
        """
        with PATCHING:
            if self._restored:
                return
            before = vars(owner).get(name, _ABSENT)
            original = _inherited(owner, name) if before is _ABSENT else before
            bound = isinstance(before, (classmethod, staticmethod))
            ours = type(before)(make(original.__func__)) if bound else make(original)
            _set(owner, name, ours)
            self._patches = [patch for patch in self._patches if patch.owner() is not None]
            self._patches.append(_Patch(owner, name, before, ours))

    def around(
        self,
        original: Callable[..., Any],
        *,
        before: Callable[..., Any] | None = None,
        after: Callable[[Any, Any, BaseException | None], object] | None = None,
    ) -> Callable[..., Any]:
        """``original`` with calls of ours around it: a coroutine function if it is one.

        ``before`` gets the arguments. ``after(state, result, error)`` gets what ``before`` returned, or without one the
        positional arguments; it is called if and only if ``before`` was, even if the hook was switched off meanwhile.
        """
        function = original.found if isinstance(original, Inherited) else original
        make = _async_around if iscoroutinefunction(function) else _around
        wrapper: Callable[..., Any] = make(self, original, before, after)
        return wrapper

    def release(self, owner: Any) -> list[str]:
        """Undo what was replaced on ``owner``. Returns a sentence for each attribute that could not be put back."""
        with PATCHING:
            here = [patch for patch in self._patches if patch.owner() is owner]
            self._patches = [patch for patch in self._patches if patch not in here]
            return _undo(here)

    def restore(self) -> list[str]:
        """Undo everything, for good. Of two callers, the second waits for the first. Returns sentences as above."""
        with PATCHING:
            self.active = False
            self._restored = True
            here, self._patches = self._patches, []
            return _undo(here)


def declared() -> tuple[Declared, ...]:
    """Every attribute that any hook of this process has replaced and not yet put back."""
    with PATCHING:
        found = [
            Declared(hook.name, patch.owner(), patch.name, patch.ours()) for hook in _hooks for patch in hook._patches
        ]
    return tuple(one for one in found if one.owner is not None and one.ours is not None)


def _undo(patches: list[_Patch]) -> list[str]:
    stuck = []
    for patch in reversed(patches):
        owner, ours = patch.owner(), patch.ours()
        if owner is None:
            continue
        current = vars(owner).get(patch.name, _ABSENT)
        if current is not ours:
            if current is not patch.before and ours is not None:  # None: somebody replaced it, and nobody calls ours
                stuck.append(
                    f"{_label(owner)}.{patch.name} was wrapped by somebody else after us: left as it is, "
                    "our part of it now passes through"
                )
        else:
            _set(owner, patch.name, patch.before)
    return stuck


def _set(owner: Any, name: str, value: Any) -> None:
    """Set or, where ``value`` is absent, delete an attribute of ``owner`` itself, whatever its ``__setattr__`` does."""
    if _is_lasting(owner):
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
        return
    own = vars(owner)
    before = own.get(name, _ABSENT)
    if value is _ABSENT:
        del own[name]
        return
    own[name] = value
    if getattr(owner, name) is not value:  # a property of its class, or another way of looking it up
        if before is _ABSENT:
            del own[name]
        else:
            own[name] = before
        raise TypeError(f"{_label(owner)}.{name} cannot be set on the instance")


def _is_lasting(owner: Any) -> bool:
    return isinstance(owner, (type, ModuleType))


def _reference(thing: Any, lasting: bool) -> Callable[[], Any]:
    try:
        found: Callable[[], Any] = (lambda: thing) if lasting else ref(thing)
    except TypeError:
        return lambda: thing
    return found


def _label(owner: Any) -> str:
    return getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or type(owner).__name__


def _around(hook: Hook, original: Any, before: Any, after: Any) -> Any:
    if after is None:

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if hook.active:
                try:
                    before(*args, **kwargs)
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    hook.fault(exc)
            return original(*args, **kwargs)

        return call

    @wraps(original)
    def call_between(*args: Any, **kwargs: Any) -> Any:
        if not hook.active:
            return original(*args, **kwargs)
        state = _begun(hook, before, args, kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as exc:
            _ended(hook, after, state, None, exc)
            raise
        _ended(hook, after, state, result, None)
        return result

    return call_between


def _async_around(hook: Hook, original: Any, before: Any, after: Any) -> Any:
    @wraps(original)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not hook.active:
            return await original(*args, **kwargs)
        state = _begun(hook, before, args, kwargs)
        try:
            result = await original(*args, **kwargs)
        except BaseException as exc:
            _ended(hook, after, state, None, exc)
            raise
        _ended(hook, after, state, result, None)
        return result

    return call


def _begun(hook: Hook, before: Any, args: Any, kwargs: Any) -> Any:
    if before is None:
        return args
    try:
        return before(*args, **kwargs)
    except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
        hook.fault(exc)
        return _ABSENT


def _ended(hook: Hook, after: Any, state: Any, result: Any, error: BaseException | None) -> None:
    if state is _ABSENT or after is None:
        return
    try:
        after(state, result, error)
    except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
        hook.fault(exc)
