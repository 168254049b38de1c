"""README and docs stay true: links lead somewhere, Python parses, shown files are the files, public names exist.

A Python block under ``<!-- file: examples/stdio.py -->`` must be that file, or consecutive lines of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mcp_probe

ROOT = Path(__file__).resolve().parent.parent.parent
FRONT = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n+)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$",
    re.M | re.S,
)
LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.M)


@dataclass(frozen=True)
class Block:
    language: str
    file: str | None
    code: str
    line: int


def blocks_of(text: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        width = len(fence["indent"])
        code = "".join(line[width:] if line.strip() else line for line in fence["body"].splitlines(keepends=True))
        yield Block(fence["language"], fence["file"], code, text.count("\n", 0, fence.start("language")) + 1)


def anchors_of(text: str) -> set[str]:
    """Anchors as GitHub makes them: lower case, punctuation dropped, each space a dash."""
    titles = (match["title"] for match in HEADING.finditer(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    broken = []
    for link in LINK.finditer(FENCE.sub("", text)):
        path, _, anchor = link["target"].partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        is_anchor_missing = (
            anchor
            and target.suffix == ".md"
            and target.exists()
            and anchor not in anchors_of(target.read_text("utf-8"))
        )
        if not target.exists() or is_anchor_missing:
            broken.append(link["target"])
    return broken


def stale_blocks(text: str, root: Path) -> list[str]:
    """Blocks that say which file they show, and do not show it."""
    stale = []
    for block in blocks_of(text):
        if block.file is None:
            continue
        shown = root / block.file
        if not shown.exists() or block.code not in shown.read_text("utf-8"):
            stale.append(f"line {block.line}: {block.file}")
    return stale


def python_faults(text: str) -> list[str]:
    """Python blocks that do not parse, and names of mcp_probe in them that are not public."""
    faults = []
    for block in blocks_of(text):
        if block.language not in {"python", "py"}:
            continue
        try:
            tree = compile(block.code, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            faults.append(f"line {block.line}: {error}")
            continue
        faults += [
            f"line {block.line}: mcp_probe.{name} is not public" for name in names_used(tree) - set(mcp_probe.__all__)
        ]
    return faults


def names_used(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mcp_probe":
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module == "mcp_probe":
            names |= {alias.name for alias in node.names}
    return names


pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pages
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pages
def test_a_block_that_names_a_file_shows_that_file(page: Path) -> None:
    assert stale_blocks(page.read_text("utf-8"), ROOT) == []


@pages
def test_python_on_a_page_parses_and_uses_public_names(page: Path) -> None:
    assert python_faults(page.read_text("utf-8")) == []


def test_a_broken_link_and_a_missing_anchor_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("## How long? `wait_ns`\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#how-long-wait_ns) [c](https://example.org/x)"
    page.write_text(f"{good} [d](gone.md) [e](other.md#no-heading) [f](#nowhere)\n```text\n[g](gone.md)\n```\n")
    assert broken_links(page) == ["gone.md", "other.md#no-heading", "#nowhere"]


def test_a_block_that_differs_from_its_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import os\nprint(1)\n")
    fences = [
        f"<!-- file: {name} -->\n```python\n{code}```\n"
        for name, code in (("one.py", "print(1)\n"), ("one.py", "print(2)\n"))
    ]
    assert stale_blocks("\n".join(fences), tmp_path) == ["line 7: one.py"]


def test_python_that_does_not_parse_or_names_what_is_not_public_is_found() -> None:
    broken = "def f(:"
    codes = [("python", "await x"), ("python", broken), ("python", "mcp_probe.no_such_name"), ("sh", broken)]
    text = "".join(f"```{language}\n{code}\n```\n" for language, code in codes)
    faults = python_faults(text)
    assert [fault.split(":")[0] for fault in faults] == ["line 4", "line 7"]
    assert faults[1].endswith("mcp_probe.no_such_name is not public")
