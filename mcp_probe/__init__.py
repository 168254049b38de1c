"""mcp_probe: where every request of an MCP server spent its time, and which other request took it.

    import mcp_probe
    probe = mcp_probe.attach(server)     # before server.run()
    probe.snapshot()                     # -> Summary

Public names are resolved on first use, so that importing the package loads nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost 4 ms in every Python process below `mcp-probe run`
if TYPE_CHECKING:
    from mcp_probe.errors import MissingExtraError as MissingExtraError
    from mcp_probe.errors import OptionError as OptionError
    from mcp_probe.errors import ProbeError as ProbeError
    from mcp_probe.errors import RecordingError as RecordingError
    from mcp_probe.errors import UnsupportedServerError as UnsupportedServerError
    from mcp_probe.model import Finding as Finding
    from mcp_probe.model import Summary as Summary
    from mcp_probe.session import Probe as Probe
    from mcp_probe.session import attach as attach

__version__ = "0.1.0"

_HOMES = {
    "attach": "session",
    "Probe": "session",
    "Summary": "model",
    "Finding": "model",
    "ProbeError": "errors",
    "OptionError": "errors",
    "RecordingError": "errors",
    "MissingExtraError": "errors",
    "UnsupportedServerError": "errors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except Exception as exc:
        if home != "session":
            raise
        from mcp_probe.inert import stand_in

        return stand_in(name, exc)  # a server that asks for the probe must start all the same
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
