"""The event loops a test may ask for: ``@pytest.mark.parametrize("anyio_backend", LOOPS)``."""

from __future__ import annotations

import pytest

ASYNCIO = pytest.param("asyncio", id="asyncio")
UVLOOP = pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")
TRIO = pytest.param("trio", id="trio")

LOOPS = [ASYNCIO, UVLOOP, TRIO]
