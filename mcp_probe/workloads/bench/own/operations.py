"""What a user's server offers, and what of it may be called without being asked to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.bench.own.proposals import proposed
from mcp_probe.workloads.load.peer import Peer, Target, listed
from mcp_probe.workloads.load.wire import Order

MOST_READ = 8
"""Prompts, resources and tools whose latency is taken unasked, of each kind; the rest is named."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """What to compare: a server, perhaps the same one over HTTP as well, and which of its tools may be called."""

    target: Target
    over_http: Target | None = None  # the same server, where ``target`` is a command
    tool: str | None = None  # call this one and no other
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of ``tool``
    calls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # tools to call as well; the first is the main
    yes: bool = False  # call every tool for which arguments can be proposed
    probe: bool = True
    again: str = "mcp-probe bench"  # the command line so far, for commands that the page gives

    @property
    def is_probed(self) -> bool:
        """Whether it can be started under the probe, and is to be."""
        return self.probe and bool(self.target.command)


@dataclass(frozen=True, slots=True)
class Operation:
    """One request that can be made as often as one likes."""

    label: str
    order: Order


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the server: with what it is called, or why not, and the command that calls it."""

    name: str
    arguments: Mapping[str, Any] | None  # None: none can be proposed
    is_called: bool
    is_named: bool  # by the user
    reason: str  # why it is called or not
    command: str

    @property
    def operation(self) -> Operation:
        """A call of it, with its arguments."""
        return Operation(
            f"tool {self.name}", Order("tools/call", {"name": self.name, "arguments": dict(self.arguments or {})})
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """What was found. ``main``: the operation that the user named."""

    operations: tuple[Operation, ...]
    tools: tuple[Tool, ...]
    main: Operation | None
    notes: tuple[str, ...]  # what was left out, and why


async def offer_of(peer: Peer, own: OwnServer) -> Offer:
    """What this server offers, and which of its tools are called.

    Raises:
        OptionError: there is no such tool.
        LaunchError: it offers nothing at all, or does not list what it says it has.
    """
    found: list[Operation] = []
    notes: list[str] = []
    if not peer.modern:
        found.append(Operation("ping", Order("ping", {})))
    offered: dict[str, list[Mapping[str, Any]]] = {}
    for what in ("tools", "prompts", "resources"):
        offered[what] = await listed(peer, what)
        if what in peer.capabilities:
            found.append(Operation(f"list {what}", Order(f"{what}/list", {})))
    tools = tools_of(offered["tools"], own)
    prompts = [
        Operation(f"prompt {prompt['name']}", Order("prompts/get", {"name": prompt["name"], "arguments": {}}))
        for prompt in offered["prompts"]
        if not any(each.get("required") for each in prompt.get("arguments") or ())
    ]
    resources = [
        Operation(f"read {resource['uri']}", Order("resources/read", {"uri": resource["uri"]}))
        for resource in offered["resources"]
    ]
    named = [tool.operation for tool in tools if tool.is_called and tool.is_named]
    unnamed = [tool.operation for tool in tools if tool.is_called and not tool.is_named]
    for group in (prompts, resources):
        found += group[:MOST_READ]
        if len(group) > MOST_READ:
            notes.append(f"Not measured: {', '.join(each.label for each in group[MOST_READ:])}.")
    found += [*unnamed, *named]
    if not found:
        raise LaunchError("The server offers no tools, prompts or resources, and knows no ping: nothing to compare.")
    first = own.tool or next(iter(own.calls), None)
    main = next((each for each in named if each.label == f"tool {first}"), None)
    return Offer(tuple(found), tools, main, tuple(notes))


def _few(tools: Sequence[Tool], own: OwnServer) -> tuple[Tool, ...]:
    """Of those that nobody asked for only the first are called."""
    if own.yes:
        return tuple(tools)
    unnamed = [tool.name for tool in tools if tool.is_called and not tool.is_named]
    reason = f"Not called: of {len(unnamed)} read-only tools only the first {MOST_READ} are, without --yes"
    return tuple(
        replace(tool, is_called=False, reason=reason) if tool.name in unnamed[MOST_READ:] else tool for tool in tools
    )


def tools_of(offered: Sequence[Mapping[str, Any]], own: OwnServer) -> tuple[Tool, ...]:
    """Each tool with its arguments: as the user gave them, else as its schema has them.

    Raises: OptionError for one that is named and not there.
    """
    names = [str(each.get("name")) for each in offered]
    for name in (*([own.tool] if own.tool is not None else ()), *own.calls):
        if name not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise OptionError(f"The server has no tool {name}; {has}.")
    return _few([_tool(each, own) for each in offered], own)


def _tool(offered: Mapping[str, Any], own: OwnServer) -> Tool:
    name = str(offered.get("name"))
    given = own.arguments if name == own.tool else own.calls.get(name)
    if given is not None:
        return Tool(name, given, True, True, "You named it", _command(own, name, given))
    found = proposed(offered.get("inputSchema"))
    command = _command(own, name, found.arguments if found.arguments is not None else _blank(offered))
    if found.arguments is None:
        return Tool(name, None, False, False, f"Not called: {found.refused}.", command)
    wherefrom = ", ".join(f"{argument}: {source}" for argument, source in found.sources)
    shown = f" {json.dumps(found.arguments, ensure_ascii=False)} ({wherefrom})" if wherefrom else ""
    why_not = _held_back(offered, own)
    if why_not:
        reason = f"Not called: {why_not}. Proposed:{shown}" if shown else f"Not called: {why_not}"
        return Tool(name, found.arguments, False, False, reason, command)
    safe = "the server declares it read-only" if _hint(offered, "readOnlyHint") else "--yes"
    return Tool(name, found.arguments, True, False, f"Called, {safe}:{shown or ' no arguments'}", command)


def _held_back(offered: Mapping[str, Any], own: OwnServer) -> str:
    """Why a tool is not called without being named; empty where it is."""
    if own.tool is not None:
        return f"only {own.tool} was asked for"
    if own.yes:
        return ""
    if not _hint(offered, "readOnlyHint"):
        return "the server does not declare it read-only"
    if _hint(offered, "openWorldHint"):
        return "it reads from systems of others, as the server says"
    return ""


def _hint(tool: Mapping[str, Any], name: str) -> bool:
    annotations = tool.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get(name) is True


def _blank(offered: Mapping[str, Any]) -> dict[str, str]:
    schema = offered.get("inputSchema")
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return {str(name): "…" for name in required} if isinstance(required, list) else {}


def _command(own: OwnServer, name: str, arguments: Mapping[str, Any]) -> str:
    return f"{own.again} --call {shlex.quote(f'{name}={json.dumps(dict(arguments), ensure_ascii=False)}')}"
