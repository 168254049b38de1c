"""What runs inside a server that `mcp-probe attach` has entered: attaches, stays until it is told to leave, detaches.

All of it runs on a thread of its own; the main thread has only started that one. Nothing here raises into the server,
and nothing is written to its streams. Without a word from the command, the end of the connection means: leave.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from mcp_probe.errors import ProbeError
from mcp_probe.launch.channel import ChannelSink, connected
from mcp_probe.process import PROCESS
from mcp_probe.session import ForwardingProbe, VisitingProbe

_SERVERS = "mcp.server.lowlevel.server"


class Guest:
    """One visit. ``control`` is the connection to the command; ``run`` the folder that it made for this visit."""

    def __init__(self, control: socket.socket, run: str, options: dict[str, Any]) -> None:
        self._control = control
        self._run = run
        self._options = options

    def stay(self) -> None:
        """Attach, wait to be told to leave, and detach. Blocks; not on a loop's thread."""
        refusal = _refusal()
        servers = [] if refusal else list(servers_here())
        if not refusal and not servers:
            refusal = "idle"
        probe = None if refusal else self._attach(servers)
        if probe is None:
            return self._tell(refused=refusal or _session_here())
        self._tell(attached=[_name_of(server) for server in servers])
        with suppress(OSError):
            while self._control.recv(4096) not in (b"", b"leave\n"):
                pass
        probe.detach()
        return self._tell(left=list(probe.stuck))

    def _attach(self, servers: Iterable[Any]) -> VisitingProbe | None:
        """``None`` where somebody else was faster."""
        with PROCESS.lock:
            if PROCESS.sessions:
                return None
            probe = VisitingProbe(ChannelSink(os.path.join(self._run, "channel")), **self._options)
        try:
            for server in servers:
                with suppress(ProbeError):
                    probe.attach(server)
            probe.attach_every_server()
        except BaseException:
            probe.detach()
            raise
        return probe

    def _tell(self, **words: Any) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(words).encode() + b"\n")


def enter(run: str, options: dict[str, Any]) -> None:
    """Called by what was injected, on a thread of its own. Raises nothing."""
    global _guest
    try:
        control = connected(os.path.join(run, "control"))
    except OSError:
        return  # the command has gone
    with control:
        control.setblocking(True)
        _guest = control
        try:
            _say(control, here=os.getpid())
            Guest(control, run, options).stay()
        except Exception as exc:  # noqa: BLE001 - it must not reach the server
            _say(control, failed=f"{type(exc).__name__}: {exc}")
        finally:
            _guest = None


_guest: socket.socket | None = None


def _leave_child_alone() -> None:
    """In a forked child: its copy of the connection would hide that the server has ended."""
    global _guest
    if _guest is not None:
        with suppress(OSError):
            _guest.close()
        _guest = None


os.register_at_fork(after_in_child=_leave_child_alone)


def _say(control: socket.socket, **words: Any) -> None:
    with suppress(OSError):
        control.sendall(json.dumps(words).encode() + b"\n")


def _refusal() -> str | None:
    """Why nothing can be attached here; ``None`` where that is worth a try."""
    if PROCESS.sessions:
        return _session_here()
    return None if _SERVERS in sys.modules else "no mcp"


def _session_here() -> str:
    kinds = {type(session) for session in list(PROCESS.sessions)}
    if VisitingProbe in kinds:
        return "visited"
    return "run" if any(issubclass(kind, ForwardingProbe) for kind in kinds) else "attached"


def servers_here() -> Iterator[Any]:
    """Every low-level MCP server of this process.

    The garbage collector is asked who refers to their class. A list of all objects would keep those alive that end
    meanwhile, and then end them on this thread. What `gc.freeze` has put aside is found in modules only.
    """
    server = getattr(sys.modules.get(_SERVERS), "Server", None)
    if not isinstance(server, type):
        return
    kinds = list(_with_subclasses(server))
    ids = {id(kind) for kind in kinds}
    found = [thing for thing in gc.get_referrers(*kinds) if id(type(thing)) in ids]
    found = found or [thing for thing in _module_globals() if id(type(thing)) in ids]
    seen: set[int] = set()
    for thing in found:
        if id(thing) not in seen:
            seen.add(id(thing))
            yield thing


def _with_subclasses(kind: Any) -> Iterator[type]:
    yield kind
    for below in kind.__subclasses__():
        yield from _with_subclasses(below)


def _module_globals() -> Iterator[Any]:
    """What stands in modules, and what an MCPServer or FastMCP there has inside."""
    for module in list(sys.modules.values()):
        for thing in list(getattr(module, "__dict__", {}).values()):
            yield thing
            for name in ("_lowlevel_server", "_mcp_server"):
                with suppress(Exception):  # somebody else's object
                    yield vars(thing).get(name)


def _name_of(server: Any) -> str:
    name = getattr(server, "name", None)
    return name if isinstance(name, str) else "server"
