# mypy: ignore-errors
"""A platform that lacks names of the standard library, for mcp_probe.

Usage: bare_platform.py each|all memory|stdio FOLDER. FOLDER/names has pairs of module and name. ``each`` forks once for
every pair; ``all`` takes all of them away, and ``/proc`` and ``/sys`` with them.

The standard library, anyio and mcp need some of these names to go on, and look them up at any time. So the names are
hidden from mcp_probe only: what it imports, at whatever time, is a copy of the module without them.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import json
import os
import sys
import types

from tests.platform.attached_calls import in_memory, make_server, tried

BLOCK_MS = 50.0


class Bare(types.ModuleType):
    """A copy of ``module`` without ``missing``. What a hook sets on it is set on the module, too."""

    def __init__(self, module, missing):
        super().__init__(module.__name__)
        vars(self).update({name: value for name, value in vars(module).items() if name not in missing})
        vars(self)["_itself"] = module

    def __setattr__(self, name, value):
        setattr(self._itself, name, value)
        vars(self)[name] = value


def hide(names, *, without_proc=False):
    """Take ``names``, pairs of module and name, away from mcp_probe. An empty name is the whole module."""
    missing = {}
    for module, name in names:
        missing.setdefault(module, set()).add(name)
    real = builtins.__import__
    bare = {module: Bare(importlib.import_module(module), gone) for module, gone in missing.items() if "" not in gone}

    def import_(name, globals=None, locals=None, fromlist=(), level=0):
        ours = str((globals or {}).get("__name__", "")).partition(".")[0] == "mcp_probe"
        if not ours or level or name not in missing:
            return real(name, globals, locals, fromlist, level)
        if name not in bare:
            raise ImportError(f"No module named {name!r}", name=name)
        return bare[name]

    builtins.__import__ = import_
    if without_proc:
        sys.addaudithook(refuse)


def refuse(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "this platform has no such files", args[0])


def main(which, transport, folder):
    with open(os.path.join(folder, "names"), encoding="utf-8") as file:
        names = json.load(file)
    assert not [name for name in sys.modules if name.startswith("mcp_probe")], "it has been imported with all names"
    if which == "each":
        asyncio.run(in_memory(make_server(), 0.0))  # so that no fork pays for the first call
        for pair in [*names, ("/proc", "")]:
            child = os.fork()
            if not child:
                hide([] if pair[0] == "/proc" else [pair], without_proc=pair[0] == "/proc")
                tried(".".join(filter(None, pair)), transport, folder, BLOCK_MS, memory="light")
                os._exit(0)
            os.waitpid(child, 0)
    else:
        hide(names, without_proc=True)
        tried("all", transport, folder, BLOCK_MS, report=os.path.join(folder, "report"))


if __name__ == "__main__":
    main(*sys.argv[1:])
