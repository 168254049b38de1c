"""The memory hooks where they could do harm, in a process of its own.

``python -m tests.native.memory_torture PART SECONDS`` ends with 0 and a line of JSON, or dies: of an assertion, or of a
signal where memory was misused. ``all`` runs the parts that may be repeated in turn until the time is over.
"""

from __future__ import annotations

import gc
import importlib
import json
import lzma
import os
import random
import sys
import tempfile
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp_probe import native

core: Any = native.core
hooks: Any = native.memory
MODES = ("gross", "hybrid", "shadow")
TEXT = b"".join(b"%d bottles of beer on the wall, " % number for number in range(4000))
PACKED, DEFLATED = lzma.compress(TEXT), zlib.compress(TEXT)
BLOCK = 3_000_000


def request(number: int = 1) -> Any:
    """A request that is measured from its beginning where the hooks are installed."""
    return core.Request(number, "request", "tools/call", "t", "stdio")


def churn(seed: int, stop: threading.Event, charged: bool) -> None:
    """Allocate, move and free in every domain, with and without the GIL, and check what was stored."""
    rolls = random.Random(seed)
    kept: list[Any] = []
    while not stop.is_set():
        before = hooks.charge(request(seed)) if charged else None
        for _ in range(20):
            size = rolls.randrange(1, 3000)
            one = bytearray([size % 251]) * size
            one.extend(one)  # moves it
            kept.append((size, one))
            kept.append({number: str(number) for number in range(size % 40)})
        assert zlib.decompress(DEFLATED) == TEXT  # allocates without the GIL
        assert lzma.decompress(PACKED) == TEXT
        if len(kept) > 400:
            for part in kept[:300]:
                if isinstance(part, tuple):
                    assert part[1] == bytes([part[0] % 251]) * (2 * part[0])
            del kept[:300]
        if charged:
            hooks.charge(before)


class Churning:
    """Threads that churn while the block runs; half of them charge what they do to requests."""

    def __init__(self, threads: int = 4) -> None:
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def _run(self, number: int) -> None:
        try:
            churn(number, self._stop, number % 2 == 0)
        except BaseException as exc:  # noqa: BLE001 - raised again at the end
            self._failures.append(exc)

    def __enter__(self) -> Churning:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]


def check_balance() -> None:
    """Install anew: what a request allocates is its own, and is no longer held when it is freed."""
    hooks.install("shadow")
    state = hooks.state()
    assert state["valid"], state
    raw = request()
    hooks.charge(raw)
    block = bytearray(BLOCK)
    hooks.charge(None)
    requested, allocations, owned, held, peak, blocks = raw.memory()
    assert requested == owned and allocations >= blocks, raw.memory()
    assert BLOCK < held <= peak <= requested < BLOCK + 1000, raw.memory()
    del block
    assert raw.memory()[3] < 200, raw.memory()  # the interpreter may keep something of its own from a first call
    hooks.uninstall()


def toggle(seconds: float) -> dict[str, Any]:
    """Hooks come, change and go while threads churn."""
    rolls, until, times = random.Random(7), time.monotonic() + seconds, 0
    with Churning():
        while time.monotonic() < until:
            for _ in range(50):
                if rolls.random() < 0.5:
                    hooks.uninstall()
                else:
                    hooks.install(rolls.choice(MODES))
                times += 1
            time.sleep(0.001)
        hooks.uninstall()
    check_balance()
    return {"times": times}


def fork(seconds: float) -> dict[str, Any]:
    """Children are made while threads churn in the raw domain; they measure, and end well."""
    until, children = time.monotonic() + seconds, 0
    while time.monotonic() < until or not children:
        hooks.install(MODES[1 + children % 2])
        with Churning():
            for _ in range(5):
                time.sleep(0.002)
                child = os.fork()
                if child == 0:
                    try:
                        raw = request()
                        hooks.charge(raw)
                        block = bytearray(BLOCK)
                        hooks.charge(None)
                        assert raw.memory()[3] > BLOCK
                        del block
                        assert raw.memory()[3] < BLOCK
                        check_balance()
                        os._exit(0)
                    finally:
                        os._exit(1)
                _, status = os.waitpid(child, 0)
                assert status == 0, status
                children += 1
        hooks.uninstall()
    check_balance()
    return {"children": children}


class Tracemalloc:
    """Python's own tracer, which puts itself over whatever allocator is there, and takes that back at its end."""

    def start(self) -> None:
        tracemalloc.start(2)

    def stop(self) -> None:
        tracemalloc.stop()


class Memray:
    """A tracer that also patches the C library's allocator."""

    def start(self) -> None:
        import memray

        self._folder = tempfile.TemporaryDirectory()
        self._tracker = memray.Tracker(Path(self._folder.name) / "out.bin", trace_python_allocators=True)
        self._tracker.__enter__()

    def stop(self) -> None:
        self._tracker.__exit__(None, None, None)
        self._folder.cleanup()


def asked(size: int) -> int:
    """What a request asks for that makes a block of so many bytes."""
    raw = request()
    hooks.charge(raw)
    bytes(size)
    hooks.charge(None)
    requested: int = raw.memory()[0]
    return requested


def measured(size: int) -> int:
    """What a request holds that keeps a block of so many bytes; 0 where nothing was measured."""
    raw = request()
    hooks.charge(raw)
    block = bytearray(size)
    hooks.charge(None)
    told = raw.memory()
    del block
    return told[3] if told else 0


def beside(tool: Any) -> dict[str, Any]:
    """Every order in which another tool's hooks and ours can come and go; the data is right or says that it is not."""
    hooks.install("shadow")  # ours first, and last to go
    tool.start()
    during = hooks.state()
    assert during["valid"] and during["covered"], during
    assert BLOCK < measured(BLOCK) < BLOCK + 10_000
    for small, large in ((100, 300), (BLOCK, BLOCK + 1000)):
        # The first two hold what the tool takes for itself when it sees a line for the first time.
        found = [asked(size) for size in (small, large, small, large)]
        assert found[3] - found[2] == large - small, found
    tool.stop()
    assert hooks.state()["valid"] and not hooks.state()["covered"]
    assert BLOCK < measured(BLOCK) < BLOCK + 1000
    hooks.uninstall()

    tool.start()  # the other's first, and last to go
    hooks.install("shadow")
    assert hooks.state()["valid"], hooks.state()
    assert BLOCK < measured(BLOCK) < BLOCK + 1000
    hooks.uninstall()
    tool.stop()
    assert measured(BLOCK) == 0

    tool.start()  # the other's first, and first to go: it takes ours with it
    hooks.install("hybrid")
    early = request()
    hooks.charge(early)
    hooks.charge(None)
    tool.stop()
    lost = hooks.state()
    assert not lost["valid"] and "another tool" in lost["reason"], lost
    assert early.memory() is None and measured(BLOCK) == 0
    hooks.install("hybrid")
    assert hooks.state()["valid"]
    assert BLOCK < measured(BLOCK) < BLOCK + 1000
    hooks.uninstall()

    hooks.install("shadow")  # ours first, and first to go: the other puts them back at its end
    tool.start()
    hooks.uninstall()
    assert measured(BLOCK) == 0
    try:
        hooks.install("gross")
        raise AssertionError("another set of hooks under the other tool's")
    except RuntimeError as exc:
        assert "stop that tool first" in str(exc)
    assert hooks.state()["mode"] == "off"
    hooks.install("shadow")  # the same as before is there still
    assert hooks.state()["valid"]
    assert BLOCK < measured(BLOCK) < BLOCK + 10_000
    hooks.uninstall()
    tool.stop()
    check_balance()
    return {}


def crowd(seconds: float) -> dict[str, Any]:
    """More blocks than the table holds: counted, without an owner, and nothing is amiss when they are freed."""
    import ctypes

    library = ctypes.PyDLL(None)
    library.PyMem_RawMalloc.restype = ctypes.c_void_p
    library.PyMem_RawFree.argtypes = [ctypes.c_void_p]
    hooks.install("hybrid")
    most, raw = hooks.state()["most_entries"], request()
    hooks.charge(raw)
    blocks = [library.PyMem_RawMalloc(8) for _ in range(most + most // 16)]
    hooks.charge(None)
    state, told = hooks.state(), raw.memory()
    assert state["untracked"] >= most // 16 - 100, state
    assert state["entries"] < most + 1000 and state["table_bytes"] < 70e6, state
    assert told[3] < told[0] and told[5] < most + 1000, told
    for block in blocks:
        library.PyMem_RawFree(block)
    del blocks, block
    # Python's allocator may have made tables of its own meanwhile, which it keeps: where its heap crosses a border of
    # 16 GB of addresses one of 128 KB (Objects/obmalloc.c arena_map_bot_t), and the array of its arenas.
    assert raw.memory()[3] < 150_000 and raw.memory()[5] < 5, raw.memory()
    hooks.uninstall()
    check_balance()
    return {"untracked": state["untracked"]}


class LateJob:
    """A thread that works on for a request whose account has been given back, and may be another's by then."""

    SIZE = 200_000

    def __init__(self) -> None:
        self._begun, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        raw = request()
        hooks.charge(raw)
        raw.keep_memory()  # nobody keeps what that returns
        self._begun.set()
        self._go.wait()
        self.blocks = [bytes(number % 400) for number in range(self.SIZE // 100)]
        self.blocks += [bytes(10_000) for _ in range(self.SIZE // 10_000)]
        hooks.charge(None)

    def end(self) -> None:
        """Let it allocate, and wait for its end; what it allocated is kept."""
        self._go.set()
        self._thread.join()


def accounts(seconds: float) -> dict[str, Any]:
    """Requests come and go, and each leaves a block behind that is freed long after: no other request is credited."""
    hooks.install("shadow")
    most = hooks.state()["most_accounts"]
    left, watched = [], request()
    hooks.charge(watched)
    own = bytearray(5000)
    hooks.charge(None)
    for number in range(3 * most):
        raw = request(number)
        hooks.charge(raw)
        block = bytes(100), bytes(700)
        hooks.charge(None)
        left.append(block)
        if len(left) > 5000:
            del left[:2500]
        if number % 10_000 == 0:
            assert raw.memory()[3] >= 800 + 2 * sys.getsizeof(b""), raw.memory()
            assert 5000 < watched.memory()[3] < 5200, watched.memory()
    del left[:]
    assert 5000 < watched.memory()[3] < 5200, watched.memory()
    del own
    assert watched.memory()[3] < 200
    late = LateJob()
    held = [request(number) for number in range(most + 10)]  # more than there are accounts
    for raw in held:
        hooks.charge(raw)
    hooks.charge(None)
    state = hooks.state()
    assert state["accounts_refused"] >= 10, state
    before = sum(raw.memory()[3] for raw in held)
    late.end()
    assert sum(raw.memory()[3] for raw in held) < before + LateJob.SIZE, "charged to the next request of that account"
    del held, raw, late
    gc.collect()
    hooks.uninstall()
    check_balance()
    return {"accounts": state["accounts"]}


IN_ANOTHER_INTERPRETER = """
import time
until, kept = time.monotonic() + {seconds}, []
while time.monotonic() < until:
    kept.append({{number: str(number) for number in range(50)}})
    kept.append(bytearray(3000))
    if len(kept) > 500:
        kept.clear()
"""


def interpreters(seconds: float) -> dict[str, Any]:
    """Interpreters with a GIL of their own allocate at the same time, on threads that charge a request."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    module: Any = importlib.import_module(name)
    run = module.exec if hasattr(module, "exec") else module.run_string

    def elsewhere(interpreter: Any) -> None:
        before = hooks.charge(request())
        run(interpreter, IN_ANOTHER_INTERPRETER.format(seconds=seconds / 2))
        hooks.charge(before)

    for mode in ("shadow", "hybrid"):
        hooks.install(mode)
        made = [module.create() for _ in range(2)]
        threads = [threading.Thread(target=elsewhere, args=(one,)) for one in made]
        with Churning(2):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert hooks.state()["valid"], hooks.state()
        for one in made:
            module.destroy(one)
        hooks.uninstall()
    check_balance()
    return {}


PARTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "toggle": toggle,
    "fork": fork,
    "crowd": crowd,
    "interpreters": interpreters,
    "accounts": accounts,
    "tracemalloc": lambda seconds: beside(Tracemalloc()),
    "memray": lambda seconds: beside(Memray()),
}


def everything(seconds: float) -> dict[str, Any]:
    """The parts that run as long as they are told to, in turn."""
    until, told = time.monotonic() + seconds, {"times": 0, "children": 0}
    while time.monotonic() < until:
        told["times"] += toggle(5)["times"]
        told["children"] += fork(2)["children"]
        accounts(0)
        crowd(0)
        print(f"{until - time.monotonic():.0f} s to go, {told}", file=sys.stderr, flush=True)
    return told


if __name__ == "__main__":
    part, length = sys.argv[1], float(sys.argv[2])
    print(json.dumps({**(everything if part == "all" else PARTS[part])(length)}))
