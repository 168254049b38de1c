"""The documentation as a site: links of the staged pages, and a place for every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import site
from tools.site import FRONT, NAVIGATION, ROOT, foreign_loads, relinked

GUIDE = ROOT / "docs" / "memory.md"


def test_every_page_has_one_place_in_the_navigation() -> None:
    pages = sorted([*(page.name for page in (ROOT / "docs").glob("*.md")), *FRONT.values()])
    assert sorted(page for group in NAVIGATION.values() for page in group) == pages


@pytest.mark.parametrize(
    ("page", "text", "staged"),
    [
        (GUIDE, "[a](findings.md#leak)", "[a](findings.md#leak)"),
        (GUIDE, "[a](../CONTRIBUTING.md#adding-things)", "[a](contributing.md#adding-things)"),
        (GUIDE, "![a](telemetry-jaeger.png)", "![a](telemetry-jaeger.png)"),
        (GUIDE, "[a](#here) [b](https://example.org/x)", "[a](#here) [b](https://example.org/x)"),
        (GUIDE, "see [the script](../examples/leak_hunt.py).", "see the script."),
        (GUIDE, "```sh\n[a](../examples/x.py)\n```\n", "```sh\n[a](../examples/x.py)\n```\n"),
        (ROOT / "README.md", "[a](docs/ci.md) [b](CHANGELOG.md)", "[a](ci.md) [b](changelog.md)"),
    ],
)
def test_links_fit_the_folder_of_the_site(page: Path, text: str, staged: str) -> None:
    assert relinked(text, page) == staged


def test_a_file_that_is_no_page_is_linked_where_the_project_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "repository", lambda: "https://example.org/me/it")
    shown = relinked("[a](../examples/leak_hunt.py)", GUIDE)
    assert shown == "[a](https://example.org/me/it/blob/main/examples/leak_hunt.py)"


def test_what_a_page_would_load_from_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text(
        '<a href="https://x.org">x</a><script src="a.js"></script><link rel=canonical href="https://x.org">'
    )
    (tmp_path / "good.css").write_text("a { background: url(a.png) }")
    assert foreign_loads(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<script src="//x.org/a.js"></script><link rel="stylesheet" href="https://x.org/a.css">'
    )
    (tmp_path / "bad.css").write_text("@font-face { src: url('https://x.org/a.woff') }")
    assert foreign_loads(tmp_path) == [
        "bad.html: //x.org/a.js",
        "bad.html: https://x.org/a.css",
        "bad.css: https://x.org/a.woff",
    ]
