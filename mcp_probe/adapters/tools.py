"""Finds the tools' own functions, so that an allocation can be charged to a tool by where it was made.

Tools are found among the living objects, since a server that is not attached by hand is known by its low-level part
only, which knows handlers and no tools. Source: mcp 1.x ``server/fastmcp/tools/base.py``, 2.x
``server/mcpserver/tools/base.py`` (``Tool.name``, ``Tool.fn``); fastmcp 2-4 ``FunctionTool``, alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

from mcp_probe.capture import heap
from mcp_probe.capture.places import Code, code_of

SDKS = ("mcp.", "fastmcp.")


def functions_of_tools() -> tuple[Code, ...]:
    """The own function of each tool of this process; empty for a low-level server. Looks at every living object."""
    return tuple(dict.fromkeys(_codes()))


def _codes() -> Iterator[Code]:
    for found in heap.objects():
        cls = type(found)
        if not cls.__name__.endswith("Tool") or not str(cls.__module__).startswith(SDKS):
            continue
        fields = getattr(found, "__dict__", {})
        name, function = fields.get("name"), fields.get("fn")
        code = code_of(function) if isinstance(name, str) else None
        if code is not None:
            yield Code(str(name), code.co_filename, code.co_firstlineno, _last_line(code))


def _last_line(code: CodeType) -> int:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    inner = [_last_line(const) for const in code.co_consts if isinstance(const, CodeType)]
    return max([code.co_firstlineno, *lines, *inner])
