"""For tests of MCP servers: a pytest plugin, profiles to assert on that are not wall-clock noise, and made-up records.

pytest loads :mod:`mcp_probe.testing.plugin` by itself, and that loads nothing else of the package until a test asks for
the fixture ``mcp_profile``. docs/testing.md says what can be asserted, and how each figure is made.

Public names are resolved on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcp_probe.testing.errors import NotMeasuredError as NotMeasuredError
    from mcp_probe.testing.locks import LockedAwait as LockedAwait
    from mcp_probe.testing.manual_clock import ManualClock as ManualClock
    from mcp_probe.testing.profile import Profile as Profile
    from mcp_probe.testing.records import make_record as make_record
    from mcp_probe.testing.records import summary_of as summary_of
    from mcp_probe.testing.records import write_recording as write_recording
    from mcp_probe.testing.start import profile_command as profile_command
    from mcp_probe.testing.start import profile_server as profile_server

_HOMES = {
    "NotMeasuredError": "errors",
    "LockedAwait": "locks",
    "Profile": "profile",
    "profile_server": "start",
    "profile_command": "start",
    "ManualClock": "manual_clock",
    "make_record": "records",
    "summary_of": "records",
    "write_recording": "records",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
