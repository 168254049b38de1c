"""Runs a callback when a module has been imported: at once if it already is, else right after its import.

``mcp-probe run`` installs us before the server imports its SDK, and an SDK's transports may be
imported long after its server.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

_LOOK_S = 0.01


class ImportWatch(importlib.abc.MetaPathFinder):
    """A finder that finds nothing itself; it wraps the loaders of the modules it watches."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {}
        self._asking: set[str] = set()

    def when_imported(self, name: str, callback: Callback) -> None:
        """Call ``callback(module)`` once ``name`` is imported; at once where it already is.

        The callback must not raise.
        """
        module = sys.modules.get(name)
        if module is not None and not _initializing(module):
            callback(module)
            return
        self._callbacks.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        if module is not None:  # another thread imports it, perhaps by a loader that it took before we came
            from mcp_probe.capture.worker import Worker  # of ours a program without MCP imports next to nothing

            Worker("mcp-probe-import", partial(self._await_import, name, module)).start()

    def _await_import(self, name: str, module: ModuleType) -> None:
        while name in self._callbacks and _initializing(module):
            time.sleep(_LOOK_S)
        if sys.modules.get(name) is module:  # else it has failed
            self.loaded(name, module)

    def close(self) -> None:
        """Watch nothing any more."""
        self._callbacks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The real spec of a watched module, with our callback behind its loader."""
        if fullname not in self._callbacks or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _AfterLoader(spec.loader, self, fullname)
        return spec

    def loaded(self, name: str, module: ModuleType) -> None:
        """``module`` has been executed."""
        for callback in self._callbacks.pop(name, ()):
            callback(module)
        if not self._callbacks:
            self.close()


class _AfterLoader(importlib.abc.Loader):
    """The real loader, with a call afterwards; it takes its place back on the module's spec."""

    def __init__(self, loader: Any, watch: ImportWatch, name: str) -> None:
        self._loader = loader
        self._watch = watch
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watch.loaded(self._name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
