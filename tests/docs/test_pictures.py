"""Pictures in the docs are small, shown somewhere, and none is missing; `make test-browser` draws them again."""

from __future__ import annotations

import re
import struct

from tests.docs.test_docs import PAGES, ROOT

FOLDER = ROOT / "docs" / "pictures"
SHOWN = re.compile(r"!\[(?P<told>[^\]]*)\]\((?P<path>[^)]+\.png)\)")


def test_every_picture_is_small_whole_and_shown_with_a_description() -> None:
    found = [(page, one) for page in PAGES for one in SHOWN.finditer(page.read_text("utf-8"))]
    assert all(one["told"] for _, one in found)
    pictures = set(FOLDER.glob("*.png"))
    shown = {(page.parent / one["path"]).resolve() for page, one in found}
    assert pictures == {path for path in shown if path.parent == FOLDER}
    assert all(path.is_file() for path in shown)
    for picture in pictures:
        png = picture.read_bytes()
        assert png.startswith(b"\x89PNG") and png.endswith(b"IEND\xaeB`\x82")
        width, height = struct.unpack(">II", png[16:24])
        assert width >= 300 and height >= 200
        assert 5_000 < len(png) < 200_000
