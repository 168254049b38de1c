# mypy: ignore-errors
"""Breaks each function that the hooks call, one after the other, and tells what the clients of a server then saw.

Usage: broken_parts.py stdio|http|sse. The functions are found, not listed: all of ``adapters`` and ``capture`` that
a session enters. Each line of stdout is one of them: how often it raised, what the probe says of it, and what differed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import pkgutil
import sys
import threading
import traceback
from types import FunctionType

import mcp_probe
from tests.harm.programs import odd_input
from tests.harm.programs.odd_input import Served, line, make_server, post

CALLED_BY_THE_SDK = {"__aenter__", "__aexit__", "__aiter__", "__anext__", "__call__", "__getattr__", "receive", "send"}
"""Stand-ins' methods: each awaits the original, and what is ours in it is broken by itself."""
THE_WAY = {
    "AnyioHook._follow_job", "AsgiHooks.serve", "LoopMonitor.followed", "Pools.run", "Pools.run_for",
    "ServerStreams.followed", "_Sending._pass_on", "StdioHooks.pair", "UvloopMonitor._run", "_BeginningIn.__await__",
    "_BeginningIn.__init__", "_BeginningIn.__next__", "_Known.__instancecheck__", "_Known._stands_for",
    "_StreamFactory.__getitem__", "_StreamFactory.__init__", "send_in",
    # A flag; a loop over guarded calls; callbacks of weak references and the outermost functions of our own threads.
    "_JobHook._works", "Hub.transport_closed", "AsyncioMonitor._loop_died", "unfollow", "Watchdog._run",
    "AwaitLooks._run", "Worker._run",
}  # fmt: skip
"""What calls the original in its last line. Its parts are broken by themselves."""
GUARDS = {"mcp_probe.adapters.hook", "mcp_probe.capture.guard"}
"""Without these nothing is guarded; tests/adapters/test_hook.py has them."""


class Fault(Exception):
    """Raised by the part that was broken."""


def call(id, tool, **arguments):
    return line({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})


def ask(id, method, **params):
    return line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


MESSAGES = (
    call(1, "echo", text="a"),
    call(2, "fail", text="b"),
    call(3, "unknown"),
    call(4, "echo", wrong=1),
    ask(5, "tools/list"),
    ask(6, "ping"),
    ask(7, "resources/read", uri="note://a"),
    ask(8, "prompts/get", name="greet", arguments={"name": "x"}),
    ask(9, "nobody/knows"),
    line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}),
    b"no JSON\n",
)


def session(server, served, transport):
    if transport == "stdio":
        return odd_input.over_stdio(server, MESSAGES, (*range(1, 10), odd_input.LAST))
    named = ("Mcp-Session-Id: {SESSION}", f"Mcp-Protocol-Version: {odd_input.VERSION}") if transport == "http" else ()
    connections = [[post("/mcp", message, *named)] for message in MESSAGES]
    if transport == "http":
        return odd_input.over_http(served.port, connections)
    return odd_input.over_sse(served.port, connections, (*range(1, 10), odd_input.LAST))


def functions(rooms=("adapters", "capture")):
    """(name, owner, attribute, value) of every function and method of ``rooms``."""
    for room in rooms:
        root = importlib.import_module(f"mcp_probe.{room}")
        inside = pkgutil.walk_packages(getattr(root, "__path__", ()), f"{root.__name__}.")
        for name in (root.__name__, *(found.name for found in inside)):
            if name in GUARDS:
                continue
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue  # for a loop or an SDK that is not here
            for name, value in list(vars(module).items()):
                if getattr(value, "__module__", None) != module.__name__:
                    continue
                if isinstance(value, FunctionType):
                    yield f"{module.__name__}:{name}", module, name, value
                elif inspect.isclass(value):
                    for inner, member in list(vars(value).items()):
                        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
                        if isinstance(function, FunctionType) and inner not in CALLED_BY_THE_SDK:
                            yield f"{module.__name__}:{name}.{inner}", value, inner, member


class Replaced:
    """A function of ours, wherever it is named; ``make`` gets what it was."""

    def __init__(self, owner, name, member, make):
        rebuilt = make(member.__func__) if isinstance(member, (classmethod, staticmethod)) else make(member)
        ours = type(member)(rebuilt) if isinstance(member, (classmethod, staticmethod)) else rebuilt
        self._places = [(owner, name)]
        if not inspect.isclass(owner):
            for module in list(sys.modules.values()):
                if getattr(module, "__name__", "").startswith("mcp_probe"):
                    self._places += [(module, key) for key, value in vars(module).items() if value is member]
        self._member = member
        for place, key in self._places:
            setattr(place, key, ours)

    def undo(self):
        for place, key in self._places:
            setattr(place, key, self._member)


def counting(entered, name):
    def make(original):
        def call(*args, **kwargs):
            entered[name] = entered.get(name, 0) + 1
            return original(*args, **kwargs)

        return call

    return make


def breaking(entered, name):
    """What ``guarded`` is put around raises inside of it, as a fault there would."""

    def make(original):
        def raises(*_args, **_kwargs):
            entered[name] = entered.get(name, 0) + 1
            raise Fault(name)

        if hasattr(original, "__wrapped__"):
            from mcp_probe.capture.guard import guarded

            return guarded(raises)
        return raises

    return make


def probed(server, served, transport, replacing=()):
    """The answers of a session with the probe, what its hooks say, and what else went wrong.

    ``replacing`` has the arguments of what is :class:`Replaced` for the session, once the probe is attached.
    """
    wrong, said = [], {}
    unraisable, thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda error: wrong.append(f"unraisable {error.exc_value!r}")
    threading.excepthook = lambda error: wrong.append(f"in a thread {error.exc_value!r}")
    answers, probe = None, None
    try:
        probe = mcp_probe.attach(server, telemetry="off")
        replaced = [Replaced(*arguments) for arguments in replacing]
        try:
            answers = session(server, served, transport)
        finally:
            for one in replaced:
                one.undo()
        said = dict(probe._hub.hooks)
    except BaseException as exc:  # noqa: BLE001 - told
        wrong.append(f"raised {exc!r} " + traceback.format_exc()[-900:])
    finally:
        if probe is not None:
            try:
                probe.detach()
            except BaseException as exc:  # noqa: BLE001 - told
                wrong.append(f"detach raised {exc!r} " + traceback.format_exc()[-900:])
        sys.unraisablehook, threading.excepthook = unraisable, thread
    return answers, said, wrong


def main():
    transport = sys.argv[1]
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    logging.disable(logging.CRITICAL)
    server = make_server()
    served = None if transport == "stdio" else Served(server, transport)
    expected = session(server, served, transport)
    entered = {}
    parts = list(functions())
    counters = [(owner, name, member, counting(entered, part)) for part, owner, name, member in parts]
    answers, _, wrong = probed(server, served, transport, counters)
    print(
        json.dumps({"part": "", "same": answers == expected, "wrong": wrong, "entered": len(entered)}),
        file=told,
        flush=True,
    )
    for part, owner, name, member in parts:
        if part not in entered or part.partition(":")[2] in THE_WAY:
            continue
        hits = {}
        answers, said, wrong = probed(server, served, transport, [(owner, name, member, breaking(hits, part))])
        faults = [f"{hook}: {state}" for hook, state in said.items() if "Fault" in state]
        row = {"said": said} if not faults and hits else {}
        row |= {"part": part, "hits": hits.get(part, 0), "same": answers == expected, "wrong": wrong, "told": faults}
        if answers != expected:
            row["answers"] = [str(one)[:300] for one in answers or () if one not in expected]
        print(json.dumps(row), file=told, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
