"""The script that `sys.remote_exec` has the server run: starts one thread, which loads the probe, and returns.

It is run as text, with a call of ``_enter`` behind it, on the server's main thread between two of its instructions.
So it imports nothing there, waits for nothing, and raises nothing. The folder of the package is not put on
``sys.path``: only ``mcp_probe`` itself can be found in it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _enter(run: str, package: str, version: str, options: dict[str, Any]) -> None:
    import _thread

    def work() -> None:
        import os

        if not os.path.exists(run):
            return  # the command did not wait so long
        try:
            load()
            from mcp_probe.launch.inside import guest

            guest.enter(run, options)
        except BaseException as exc:  # noqa: BLE001 - it must not reach the server
            complain(f"{type(exc).__name__}: {exc}")

    def load() -> None:
        import importlib.util
        import os
        import sys

        found: Any = sys.modules.get("mcp_probe")
        if found is None:
            spec: Any = importlib.util.spec_from_file_location(
                "mcp_probe", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
            )
            sys.modules["mcp_probe"] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return
        if found.__version__ != version:
            raise RuntimeError(f"it has loaded mcp_probe {found.__version__}, and this command is {version}")
        for name, module in list(sys.modules.items()):
            # A visit of another user's command has removed the copy that these were loaded from.
            path = list(getattr(module, "__path__", ())) if name.partition(".")[0] == "mcp_probe" else []
            if path and not os.path.isdir(path[0]):
                module.__path__ = [os.path.join(package, *name.split(".")[1:])]

    def complain(fault: str) -> None:
        import json
        import os
        import socket

        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(os.path.join(run, "control"))
                control.sendall(json.dumps({"failed": fault}).encode() + b"\n")
        except OSError:
            return

    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        return  # the system allows no more threads, or Python shuts down
