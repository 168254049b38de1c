from __future__ import annotations

import pytest

from mcp_probe.report.places import place, short_path


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/srv/shop/tools/resize.py", "tools/resize.py"),
        ("/srv/shop/.venv/lib/python3.13/site-packages/mcp/server.py", "mcp/server.py"),
        ("/usr/lib/python3/dist-packages/pkg/mod.py", "pkg/mod.py"),
        ("/usr/lib/python3.13t/asyncio/events.py", "asyncio/events.py"),
        ("/srv/shopping/a.py", "/srv/shopping/a.py"),
        ("/home/someone/code/project/src/app/tools.py", "…/src/app/tools.py"),
        ("C:\\code\\Lib\\site-packages\\pkg\\mod.py", "pkg/mod.py"),
        ("<string>", "<string>"),
        ("resize.py", "resize.py"),
    ],
)
def test_paths_are_as_short_as_one_can_still_find_them(path: str, short: str) -> None:
    assert short_path(path, "/srv/shop") == short


def test_a_place_without_a_line_or_a_file() -> None:
    assert place("/srv/shop/a.py", 41, "/srv/shop/") == "a.py:41"
    assert place("/srv/shop/a.py", None, "/srv/shop") == "a.py"
    assert place(None, 41, "/srv/shop") is None
    assert place("", 41, "/srv/shop") is None
