"""A set of replacements that belong together, for hooks that guard themselves: :class:`Hook` without its guard."""

from __future__ import annotations

from typing import Any

from mcp_probe.adapters.hook import Hook


class Patches:
    """See the module's text."""

    def __init__(self) -> None:
        self._hook = Hook(self, "steps (asyncio)")

    def fail(self, hook: str, exc: Exception) -> None:
        """Never called: nothing here is guarded."""

    def replace(self, owner: Any, name: str, ours: Any) -> None:
        """Set ``owner.name`` to ``ours``, remembering what stood in its own ``__dict__``."""
        self._hook.replace(owner, name, lambda original: ours)

    def restore(self) -> list[str]:
        """Undo all of it. Returns a sentence for each attribute that could not be put back."""
        return self._hook.restore()
