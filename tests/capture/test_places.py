"""Where a step is: the line its author would look at, whatever stands above and below it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.capture import places
from mcp_probe.capture.places import Place, is_plumbing, place_of, place_of_caller

SITE = "/venv/lib/python3.13/site-packages/"
STDLIB = os.path.dirname(os.__file__) + "/"
CALL = "def {name}(calls):\n    return calls[0](calls[1:])\n"


def here(calls: Any) -> Place | None:
    return place_of(sys._getframe(1))


def function_in(path: str, name: str) -> Callable[[Any], Any]:
    """A function called ``name`` whose code says it stands in ``path``; it calls the next one."""
    module = path.removesuffix(".py").rpartition("/")[2]
    names: dict[str, Any] = {"__name__": module}
    exec(compile(CALL.format(name=name), path, "exec"), names)
    function: Callable[[Any], Any] = names[name]
    return function


def place(*stack: tuple[str, str]) -> Place:
    """Of a step whose frames are ``stack`` (path, function), the outermost first, below a loop."""
    loop = function_in(STDLIB + "asyncio/base_events.py", "_run_once")
    found = loop([*(function_in(*frame) for frame in stack), here])
    assert isinstance(found, Place)
    return found


SDK = (SITE + "mcp/server/runner.py", "handle")
HANDLER = (SITE + "mcp_server_fetch/server.py", "fetch")
HELPER = (SITE + "mcp_server_fetch/pages.py", "clean")
LIBRARY = (SITE + "markdownify/__init__.py", "markdownify")
DEEPER = (SITE + "bs4/element.py", "walk")
ANYIO = (SITE + "anyio/_backends/_asyncio.py", "start")
OWN = ("/srv/app/server.py", "resize")


@pytest.mark.parametrize(
    ("stack", "file", "library"),
    [
        ((SDK, HANDLER), HANDLER[0], None),
        ((SDK, HANDLER, LIBRARY, DEEPER), HANDLER[0], "__init__.markdownify"),
        ((SDK, HANDLER, HELPER, DEEPER), HELPER[0], "element.walk"),
        ((SDK, HANDLER, LIBRARY, HELPER), HELPER[0], None),
        ((SDK, OWN, LIBRARY, DEEPER), OWN[0], "__init__.markdownify"),
        ((SDK, HANDLER, OWN), OWN[0], None),
        ((SDK, OWN, (STDLIB + "threading.py", "wait")), OWN[0], "threading.wait"),
        ((SDK, (SITE + "sentry_sdk/wrap.py", "wrapped"), HANDLER), HANDLER[0], None),
        ((ANYIO, (STDLIB + "threading.py", "start")), ANYIO[0], "threading.start"),
        ((SDK, ("<string>", "__init__")), SDK[0], None),
    ],
)
def test_the_place_is_the_innermost_line_of_whoever_holds_the_handler(
    stack: tuple[tuple[str, str], ...], file: str, library: str | None
) -> None:
    found = place(*stack)
    assert (found.file, found.library) == (file, library)


def called_by_the_sdk(fn: Any, *stack: tuple[str, str]) -> Place | None:
    """The place of a step of a request in which the SDK calls ``fn``, and ``stack`` is what runs."""
    names: dict[str, Any] = {"function": fn}
    sdk = "def call(calls, fn=function):\n    return calls[0](calls[1:])\n"
    exec(compile(sdk, SITE + "mcp/server/mcpserver/utilities/func_metadata.py", "exec"), names)

    def look(calls: Any) -> Place | None:
        return place_of(sys._getframe(1), of_request=True)

    loop = function_in(STDLIB + "asyncio/base_events.py", "_run_once")
    found: Place | None = loop([names["call"], *(function_in(*each) for each in stack), look])
    return found


@pytest.fixture(params=["installed", "frozen"])
def laid(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """How a program's files are named: below site-packages, or by PyInstaller, whose entry script is ``entry.py``."""
    monkeypatch.setattr(places, "_kinds", {})
    if request.param == "installed":
        return lambda file: SITE + file
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/opt/program/_internal/entry.py")
    return lambda file: file


def test_the_line_is_in_the_package_of_the_function_that_the_sdk_calls(laid: Callable[[str], str]) -> None:
    tool = (laid("placed/tools.py"), "slow")
    library, wrapper = (laid("slowlib/__init__.py"), "work"), (laid("wrapping/__init__.py"), "around")
    wrapped = functools.wraps(handler := function_in(*tool))(function_in(*wrapper))
    for function, stack in ((handler, (tool, library)), (wrapped, (wrapper, tool, library))):
        found = called_by_the_sdk(function, *stack)
        assert found is not None
        assert (found.file, found.line, found.library) == (tool[0], 2, "__init__.work")


def test_a_library_is_not_the_place_if_the_tool_that_calls_it_has_no_frame(laid: Callable[[str], str]) -> None:
    """A tool that Cython has compiled."""
    handler = function_in(laid("placed/tools.py"), "slow")
    assert called_by_the_sdk(handler, (laid("slowlib/__init__.py"), "work")) is None
    assert called_by_the_sdk(len, (laid("slowlib/__init__.py"), "work")) is None


def test_a_function_of_the_sdk_that_passes_calls_on_says_nothing_of_the_handler(laid: Callable[[str], str]) -> None:
    forward = function_in(laid("fastmcp/tools/tool_transform.py"), "forward")
    found = called_by_the_sdk(forward, (laid("placed/tools.py"), "slow"), (laid("slowlib/__init__.py"), "work"))
    assert found is not None and found.file == laid("placed/tools.py")


def test_the_entry_script_of_a_frozen_program_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_kinds", {})
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/opt/program/_internal/entry.py")
    found = place(("mcp/server/runner.py", "handle"), ("wrapping.py", "around"), ("entry.py", "slow"), ("lib.py", "w"))
    assert (found.file, found.library) == ("entry.py", "lib.w")


def test_what_stands_below_the_loop_is_nobodys_step() -> None:
    main = function_in("/srv/app/server.py", "main")
    loop = function_in(STDLIB + "asyncio/base_events.py", "_run_once")
    found = main([loop, function_in(*SDK), here])
    assert found.file == SDK[0]


@pytest.mark.parametrize("path", [SITE + "nest_asyncio.py", SITE + "other_loop/loop.py"])
def test_whoever_writes_run_once_out_is_a_loop_and_holds_no_handler(path: str) -> None:
    own = function_in(path, "_run_once")
    found = function_in(*OWN)([own, function_in(*HANDLER), function_in(*HELPER), here])
    assert isinstance(found, Place)
    assert found.file == HELPER[0]


def test_a_step_of_a_request_in_which_only_plumbing_is_seen_has_no_place() -> None:
    def look(calls: Any) -> Place | None:
        return place_of(sys._getframe(1), of_request=True)

    loop = function_in(STDLIB + "asyncio/base_events.py", "_run_once")
    assert loop([function_in(*SDK), function_in(*ANYIO), look]) is None
    found = loop([function_in(*SDK), function_in(*HANDLER), look])
    assert isinstance(found, Place)
    assert found.file == HANDLER[0]


def test_a_step_that_imports_stands_where_the_import_is_and_names_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the module's body does, and what it imports in turn, is its own."""
    package = tmp_path / "heavy_module"
    package.mkdir()
    (package / "__init__.py").write_text("import heavy_module.part\n")
    (package / "part.py").write_text("import sys\nsys.modules['found_here'].look(sys._getframe())\n")
    found: list[Place | None] = []
    lookout = types.ModuleType("found_here")
    lookout.look = lambda frame: found.append(place_of(frame))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "found_here", lookout)
    monkeypatch.syspath_prepend(str(tmp_path))

    def first_call() -> None:
        import heavy_module  # type: ignore[import-not-found]  # noqa: F401

    try:
        first_call()
    finally:
        for name in [name for name in sys.modules if name.startswith("heavy_module")]:
            del sys.modules[name]
    [seen] = found
    assert seen is not None
    assert (seen.file, seen.line) == (__file__, inspect.getsourcelines(first_call)[1] + 1)
    assert seen.library == "import of heavy_module"


# --- callers ----------------------------------------------------------------------------------------------------------


def test_the_place_of_a_caller_is_the_users_own_line() -> None:
    found, line = place_of_caller(), sys._getframe().f_lineno
    assert found == f"{__file__}:{line}"


def test_the_place_of_a_caller_is_found_through_the_loops_own_methods() -> None:
    """``run_in_executor`` stands in the same file as the loop that runs the step."""

    class Executor:
        place: str | None = None

        def submit(self, function: Any, *args: Any) -> Any:
            import concurrent.futures

            self.place = place_of_caller()
            future: concurrent.futures.Future[None] = concurrent.futures.Future()
            future.set_result(None)
            return future

    executor = Executor()

    async def run() -> None:
        await asyncio.get_running_loop().run_in_executor(executor, print)  # type: ignore[arg-type]

    asyncio.run(run())
    assert executor.place is not None
    assert executor.place.startswith(__file__)


# --- frames -----------------------------------------------------------------------------------------------------------

LOOK = """
import faulthandler, gc, sys, threading, time
from mcp_probe.capture.places import frame_of

faulthandler.dump_traceback_later(30, exit=True)

def turn():
    pass

def run():
    while True:
        turn()
        time.sleep(0)

class Ring:
    pass

def leave_garbage():
    ring = Ring()
    ring.me, ring.local = ring, threading.local()
    ring.local.value = 1

threads = [threading.Thread(target=run, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(1000):
    for more in range(6):
        gc.disable()
        leave_garbage()
        gc.set_threshold(gc.get_count()[0] + more, 1000, 1000)
        gc.enable()
        assert frame_of(threads[0].ident) is not None
        assert gc.isenabled()
gc.disable()
frame_of(threads[0].ident)
assert not gc.isenabled()
"""


LOOK_AT_CALLERS = """
import gc, threading, time
from mcp_probe.capture.places import frame_of, own_frames

def down(depth):
    for _ in range(200):
        pass
    if depth:
        down(depth - 1)

def run():
    while True:
        down(200)

def let_others_run(phase, info):
    time.sleep(0.0002)

thread = threading.Thread(target=run, daemon=True)
thread.start()
gc.callbacks.append(let_others_run)
gc.set_threshold(5, 1000, 1000)
until = time.monotonic() + 2
deepest = 0
while time.monotonic() < until:
    deepest = max(deepest, len(own_frames(frame_of(thread.ident))))
gc.callbacks.clear()
assert deepest > 100, deepest
"""


@pytest.mark.parametrize("accelerator", ["1", "0"])
@pytest.mark.parametrize("program", [LOOK, LOOK_AT_CALLERS], ids=["a thread", "its callers"])
def test_a_look_at_a_thread_while_a_collection_is_due_ends_no_process(program: str, accelerator: str) -> None:
    """CPython 3.11 hung where the garbage holds a ``threading.local``, and crashed where the thread went on."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "MCP_PROBE_NATIVE": accelerator}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (STDLIB + "threading.py", True),
        (SITE + "anyio/_backends/_asyncio.py", True),
        (SITE + "mcp/server/session.py", True),
        (SITE + "shapely/geometry.py", False),
        ("/srv/app/server.py", False),
    ],
)
def test_python_the_sdk_and_what_it_runs_on_are_plumbing_and_other_libraries_are_not(file: str, expected: bool) -> None:
    assert is_plumbing(file) is expected


def test_a_thread_is_looked_at_until_there_was_another_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.14 imports the module of subinterpreters by itself: that it is there says nothing."""
    there: list[Any] = [(0, 1)]
    monkeypatch.setattr("mcp_probe.native.core", None)
    monkeypatch.setattr(places, "_others", places._Others())
    monkeypatch.setitem(sys.modules, "_interpreters", SimpleNamespace(list_all=lambda: there))
    assert places.frame_of(threading.get_ident()) is not None
    there.append((1, 5))
    assert places.frame_of(threading.get_ident()) is None
    there.pop()
    assert places.frame_of(threading.get_ident()) is None


def test_a_script_that_an_installer_wrote_is_nobodys_own_code() -> None:
    assert is_plumbing(os.path.join(sys.prefix, "bin", "some-server"))
    assert not is_plumbing(os.path.join(sys.prefix, "some-server"))
