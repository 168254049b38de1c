"""Hooks: what a wrapped attribute does for its callers, and what is left when it is put back."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from weakref import ref

import pytest

from mcp_probe.adapters.hook import Hook, declared


class Faults:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def fail(self, hook: str, exc: Exception) -> None:
        self.told.append((hook, repr(exc)))


class Server:
    """Somebody else's."""

    def add(self, a: int, b: int = 1) -> int:
        """Adds."""
        if a < 0:
            raise LookupError("its own")
        return a + b

    async def add_later(self, a: int, *, b: int = 1) -> int:
        await asyncio.sleep(0)
        return self.add(a, b)

    @classmethod
    def made(cls, name: str) -> tuple[type, str]:
        return cls, name

    @staticmethod
    def free(name: str) -> str:
        return name


BEFORE = dict(vars(Server))


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hook(faults: Faults) -> Iterator[Hook]:
    made = Hook(faults, "servers")
    yield made
    assert made.restore() == []
    assert dict(vars(Server)) == BEFORE
    assert [one for one in declared() if one.hook == "servers"] == []


def test_a_wrapped_call_returns_what_the_original_did_and_is_seen_on_both_sides(hook: Hook) -> None:
    seen: list[Any] = []

    def before(*args: Any, **kwargs: Any) -> str:
        seen.append((args[1:], kwargs))
        return "state"

    hook.wrap(
        Server,
        "add",
        before=before,
        after=lambda *told: seen.append(told),
    )
    assert Server().add(1, b=4) == 5
    with pytest.raises(LookupError, match="its own") as caught:
        Server().add(-1)
    assert seen == [((1,), {"b": 4}), ("state", 5, None), ((-1,), {}), ("state", None, caught.value)]


def test_without_a_before_the_state_is_the_arguments(hook: Hook) -> None:
    seen: list[Any] = []
    hook.wrap(Server, "add", after=lambda *told: seen.append(told))
    server = Server()
    server.add(1, 2)
    assert seen == [((server, 1, 2), 3, None)]


def test_a_wrapped_method_keeps_its_face_and_its_kind(hook: Hook) -> None:
    for name in ("add", "add_later", "made", "free"):
        hook.wrap(Server, name, before=lambda *args, **kwargs: None)
        ours, bare = getattr(Server, name), BEFORE[name]
        bare = getattr(bare, "__func__", bare)
        assert inspect.iscoroutinefunction(ours) is inspect.iscoroutinefunction(bare) is (name == "add_later")
        assert (ours.__name__, ours.__qualname__, ours.__doc__) == (bare.__name__, bare.__qualname__, bare.__doc__)
        assert type(vars(Server)[name]) is type(BEFORE[name])
    assert inspect.signature(Server.add) == inspect.signature(BEFORE["add"])
    assert Server.made("x") == Server().made("x") == (Server, "x")
    assert Server.free("x") == Server().free("x") == "x"
    assert asyncio.run(Server().add_later(1, b=2)) == 3


@pytest.mark.parametrize("part", ["before", "after"])
@pytest.mark.parametrize("name", ["add", "add_later"])
def test_a_fault_switches_the_hook_off_and_the_caller_gets_its_result(
    part: str, name: str, hook: Hook, faults: Faults
) -> None:
    calls: list[object] = []

    def broken(*args: Any, **kwargs: Any) -> None:
        calls.append(args)
        raise ZeroDivisionError("ours")

    hook.wrap(Server, name, **{part: broken})

    def call(a: int) -> Any:
        found = getattr(Server(), name)(a)
        return asyncio.run(found) if inspect.iscoroutine(found) else found

    assert [call(1), call(2)] == [2, 3]
    with pytest.raises(LookupError):
        call(-1)
    assert len(calls) == 1
    assert faults.told == [("servers", "ZeroDivisionError('ours')")]
    assert not hook.active and hook.faults == 1


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_what_is_no_fault_passes_through(fault: BaseException, hook: Hook, faults: Faults) -> None:
    def before(*args: Any) -> None:
        raise fault

    hook.wrap(Server, "add", before=before)
    with pytest.raises(type(fault)) as caught:
        Server().add(1)
    assert caught.value is fault and hook.active and faults.told == []


def test_a_call_under_way_as_the_hook_is_restored_is_seen_to_end(hook: Hook) -> None:
    seen: list[Any] = []
    entered, leave = threading.Event(), threading.Event()
    module = ModuleType("somebodys")

    def work() -> str:
        entered.set()
        leave.wait(100)
        return "done"

    module.work = work  # type: ignore[attr-defined]
    hook.wrap(module, "work", before=lambda: "state", after=lambda *told: seen.append(told))
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(module.work()))
    thread.start()
    assert entered.wait(100)
    hook.restore()
    assert module.work is work
    leave.set()
    thread.join(100)
    assert results == ["done"] and seen == [("state", "done", None)]


def test_what_is_set_on_an_instance_is_deleted_again_and_shadows_nobody_elses(hook: Hook) -> None:
    one, other = Server(), Server()
    vars(other)["add"] = own = lambda a: a
    hook.wrap(one, "add", before=lambda *args: None)
    hook.wrap(other, "add", before=lambda *args: None)
    assert (one.add(1), other.add(1)) == (2, 1)
    assert {(found.owner, found.name) for found in declared() if found.hook == "servers"} == {
        (one, "add"),
        (other, "add"),
    }
    hook.release(one)
    assert vars(one) == {} and hook.active and other.add is not own
    hook.restore()
    assert vars(other) == {"add": own}


def test_what_others_patch_on_the_class_after_us_takes_hold_as_without_us(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Logfire does with the server of mcp 1.x: installed after us, it saw nothing."""
    server = Server()
    seen: list[Any] = []
    for name in ("add", "add_later"):
        hook.wrap(server, name, after=lambda state, result, error: seen.append((result, error)))
    add, add_later = Server.add, Server.add_later

    def theirs(self: Server, a: int, b: int = 1) -> int:
        return 10 * add(self, a, b)

    async def theirs_later(self: Server, a: int, *, b: int = 1) -> int:
        return 1 + await add_later(self, a, b=b)

    monkeypatch.setattr(Server, "add", theirs)
    monkeypatch.setattr(Server, "add_later", theirs_later)
    assert server.add(1, b=2) == 30
    assert inspect.iscoroutinefunction(server.add_later)
    assert asyncio.run(server.add_later(1)) == 21
    assert seen == [(30, None), (20, None), (21, None)]
    monkeypatch.undo()
    assert server.add(1, b=2) == 3
    assert hook.restore() == []
    assert vars(server) == {}


def test_what_somebody_wrapped_over_ours_stays(hook: Hook) -> None:
    seen: list[object] = []
    hook.wrap(Server, "add", before=lambda *args: seen.append(args))
    ours = Server.add
    Server.add = theirs = lambda self, a, b=1: ours(self, a, b) * 10  # type: ignore[method-assign]
    try:
        [sentence] = hook.restore()
        assert sentence.startswith("Server.add was wrapped by somebody else after us")
        assert vars(Server)["add"] is theirs
        assert Server().add(1) == 20 and seen == []
    finally:
        Server.add = BEFORE["add"]  # type: ignore[method-assign]


def test_a_restored_hook_installs_nothing(hook: Hook) -> None:
    hook.restore()
    hook.wrap(Server, "add", before=lambda *args: None)
    assert vars(Server)["add"] is BEFORE["add"]


class Stubborn:
    """Does not let itself be wrapped, each in its own way."""

    @property
    def read(self) -> Any:
        return lambda: "own"


class Slotted:
    __slots__ = ("inner",)

    def read(self) -> str:
        return "own"


class Forwarding:
    inner: Server

    def __init__(self) -> None:
        vars(self)["inner"] = Server()

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.inner, name, value)

    def read(self) -> str:
        return "own"


@pytest.mark.parametrize("owner", [Stubborn(), Slotted()], ids=lambda owner: type(owner).__name__)
def test_an_object_that_cannot_be_wrapped_is_left_as_it_is(owner: Any, hook: Hook) -> None:
    with pytest.raises((TypeError, AttributeError)):
        hook.wrap(owner, "read", before=lambda: None)
    assert owner.read() == "own"
    assert [one for one in declared() if one.hook == "servers"] == []


def test_what_is_set_on_a_proxy_does_not_reach_what_is_behind_it(hook: Hook) -> None:
    owner = Forwarding()
    seen: list[object] = []
    hook.wrap(owner, "read", before=lambda: seen.append(1))
    assert owner.read() == "own" and seen == [1]
    assert vars(owner.inner) == {}
    hook.restore()
    assert vars(owner).keys() == {"inner"}


def test_a_hook_keeps_nobody_alive(hook: Hook) -> None:
    server = Server()
    hook.wrap(server, "add", before=lambda *args: None)
    gone = ref(server)
    del server
    gc.collect()
    assert gone() is None
    assert [one for one in declared() if one.hook == "servers"] == []


def test_hooks_restored_by_many_threads_at_once_leave_nothing() -> None:
    for _ in range(200):
        hooks = [Hook(Faults(), "servers") for _ in range(3)]
        names = ("add", "made", "free")
        for one, name in zip(hooks, names, strict=True):
            one.wrap(Server, name, before=lambda *args, **kwargs: None)
        threads = [threading.Thread(target=one.restore) for one in hooks * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert dict(vars(Server)) == BEFORE
