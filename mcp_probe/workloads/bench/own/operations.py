"""What may be asked of a user's server without being asked to: lists, prompts, resources, read-only tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_probe.errors import LaunchError, OptionError
from mcp_probe.workloads.load.peer import Peer, listed
from mcp_probe.workloads.load.wire import Order

MOST_READ = 8
"""Prompts, resources and read-only tools of a kind whose latency is taken; the rest is named."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request that can be made as often as one likes."""

    label: str
    order: Order


@dataclass(frozen=True, slots=True)
class Offer:
    """What was found. ``main``: the tool that the comparisons call, ``None`` where none may be called."""

    operations: tuple[Operation, ...]
    main: Operation | None
    notes: tuple[str, ...]  # what was left out, and why


async def offer_of(peer: Peer, tool: str | None, arguments: Mapping[str, Any]) -> Offer:
    """What this server offers; of its tools only ``tool``, or where that is ``None`` those that are safe to call.

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
    tools = _tools(offered["tools"], tool, arguments, notes)
    prompts = [
        Operation(f"prompt {prompt['name']}", Order("prompts/get", {"name": prompt["name"], "arguments": {}}))
        for prompt in offered["prompts"]
        if not any(each.get("required") for each in prompt.get("arguments") or ())
    ]
    resources = [
        Operation(f"read {resource['uri']}", Order("resources/read", {"uri": resource["uri"]}))
        for resource in offered["resources"]
    ]
    for group in (prompts, resources, tools):
        found += group[:MOST_READ]
        if len(group) > MOST_READ:
            notes.append(f"Not measured: {', '.join(each.label for each in group[MOST_READ:])}.")
    if not found:
        raise LaunchError("The server offers no tools, prompts or resources, and knows no ping: nothing to compare.")
    return Offer(tuple(found), tools[0] if tools else None, tuple(notes))


def _tools(
    offered: Sequence[Mapping[str, Any]], tool: str | None, arguments: Mapping[str, Any], notes: list[str]
) -> list[Operation]:
    names = [str(each.get("name")) for each in offered]
    if tool is not None:
        if tool not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise OptionError(f"The server has no tool {tool}; {has}.")
        return [Operation(f"tool {tool}", Order("tools/call", {"name": tool, "arguments": dict(arguments)}))]
    safe = [each for each in offered if _is_read_only(each) and not _required(each)]
    left = [str(each.get("name")) for each in offered if each not in safe]
    if left:
        shown = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
        notes.append(
            f"Not called: {shown}. A tool is called only when it is named (--tool, --arguments), or when the "
            "server declares it read-only and it needs no argument."
        )
    return [
        Operation(f"tool {each['name']}", Order("tools/call", {"name": each["name"], "arguments": {}})) for each in safe
    ]


def _is_read_only(tool: Mapping[str, Any]) -> bool:
    annotations = tool.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get("readOnlyHint") is True


def _required(tool: Mapping[str, Any]) -> Any:
    schema = tool.get("inputSchema")
    return schema.get("required") if isinstance(schema, Mapping) else None
