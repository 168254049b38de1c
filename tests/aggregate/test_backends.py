from __future__ import annotations

import pytest

from mcp_probe.aggregate.backends import Backend, backend_of


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("https://api.example.com:443", Backend("https", "api.example.com", 443)),
        ("http://API.example.com", Backend("http", "api.example.com", None)),
        ("postgresql+asyncpg://db:5432", Backend("postgresql+asyncpg", "db", 5432)),
        ("httpcore pool of https://[::1]:8443", Backend("https", "::1", 8443)),
        ("pool https://a:1 made at x.py:3", Backend("https", "a", 1)),
    ],
)
def test_a_backends_name_is_read_wherever_it_stands(name: str, found: Backend) -> None:
    assert backend_of(name) == found


@pytest.mark.parametrize(
    "name", ["asyncio.Lock notes.GATE", "redacted", "sleep", "other hosts", "https://user:secret@host", "httpx.get", ""]
)
def test_what_names_no_backend_is_none(name: str) -> None:
    assert backend_of(name) is None
