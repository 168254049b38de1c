"""A measured process that takes orders: one JSON line each on its stdin, answered by one on its stdout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any


class Ordered:
    """Runs ``command``, in ``environment`` if one is given; ``hello`` is what it said once it was ready.

    Raises: RuntimeError where it has ended instead of answering, also from :meth:`ask`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.hello = self._answer()

    def ask(self, **order: Any) -> dict[str, Any]:
        """The answer to one order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The measured process ended with status {self.process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Its stdin ends, which tells it to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
