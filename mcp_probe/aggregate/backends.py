"""Which backend an await was for, read from the name that its object has: ``scheme://host:port``."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(?:^|\s)([a-z][a-z0-9+.-]*)://(\[[^\]\s]+\]|[^\s/:@\[\]]+)(?::(\d{1,5}))?(?=\s|$)", re.I)


class Backend(NamedTuple):
    """What is known of a backend. ``port`` is ``None`` where its name has none."""

    scheme: str
    host: str
    port: int | None

    @property
    def is_http(self) -> bool:
        """Whether it speaks HTTP."""
        return self.scheme in ("http", "https")


def backend_of(name: str) -> Backend | None:
    """The backend in an await's object; ``None`` if it names none (a lock, a program, what ``redact`` has changed)."""
    found = _NAME.search(name)
    if found is None:
        return None
    scheme, host, port = found.groups()
    return Backend(scheme.lower(), host.strip("[]").lower(), None if port is None else int(port))
