"""What stands under each name of the modules around a server: a walk that finds everything that was replaced."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

PACKAGES = (
    "asyncio",
    "selectors",
    "threading",
    "concurrent",
    "queue",
    "anyio",
    "mcp",
    "uvicorn",
    "opentelemetry",
    "gc",
)
MORE = ("sys", "os", "signal", "builtins", "logging", "socket", "subprocess", "time")


def modules() -> list[ModuleType]:
    """Loaded modules of these packages."""
    return [
        module
        for name, module in sorted(sys.modules.items())
        if isinstance(module, ModuleType) and (name.partition(".")[0] in PACKAGES or name in MORE)
    ]


def names_of(label: str, owner: Any, found: dict[str, Any]) -> None:
    """``label.name`` → the object, for all that ``owner`` holds itself."""
    for name, value in list(vars(owner).items()):
        if name not in ("__builtins__", "__dict__", "__weakref__", "__warningregistry__", "__annotations_cache__"):
            found[f"{label}.{name}"] = value


def walk() -> dict[str, Any]:
    """Every name of the modules and of the classes that are defined in them. Holds on to what it found."""
    found: dict[str, Any] = {}
    for module in modules():
        names_of(module.__name__, module, found)
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                names_of(f"{module.__name__}.{value.__qualname__}", value, found)
    return found


def instance(label: str, owner: Any) -> dict[str, Any]:
    """The attributes that were set on one object."""
    found: dict[str, Any] = {}
    if hasattr(owner, "__dict__"):
        names_of(label, owner, found)
    return found


def is_ours(value: Any) -> bool:
    """Whether the probe made ``value``."""
    modules = (getattr(value, "__module__", None), type(value).__module__)
    return any(isinstance(module, str) and module.partition(".")[0] == "mcp_probe" for module in modules)


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names that are gone, that stand for another object, or that are new and ours.

    Modules set names of their own as they are used (anyio's are imported when they are asked for).
    """
    gone = [name for name in before if name not in after]
    other = [name for name in before if name in after and before[name] is not after[name]]
    added = [name for name in after if name not in before and is_ours(after[name])]
    found = {*gone, *other, *added}
    return sorted(name for name in found if name.rpartition(".")[0] not in found)  # a class stands for what it holds
