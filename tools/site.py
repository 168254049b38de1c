"""`make docs`: site/, the documentation as a site that loads nothing from any other host.

The pages are docs/*.md, README, CONTRIBUTING, SECURITY and CHANGELOG as they are. They are staged into one folder, and
their links made to fit it. A link to a file that is no page leads to the repository, if pyproject.toml says where that
is, else it becomes plain text. A link that leads nowhere is an error, as is a page that is nowhere in the navigation.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FRONT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "policy.md",
}

NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": (
        "index.md",
        "getting-started.md",
        "clients.md",
        "reading-the-report.md",
        "page.md",
        "findings.md",
        "troubleshooting.md",
    ),
    "Questions": (
        "awaits.md",
        "memory.md",
        "live.md",
        "attach.md",
        "recordings.md",
        "flight-recorder.md",
        "timeline.md",
        "compare.md",
        "query.md",
        "predicting.md",
        "ci.md",
        "testing.md",
        "resources.md",
    ),
    "Load and comparisons": ("load.md", "bench.md", "reproductions.md", "comparisons.md", "field-reports.md"),
    "Telemetry": ("telemetry.md", "telemetry-setup.md", "fleet.md"),
    "How far to trust it": ("how-it-measures.md", "performance.md", "compatibility.md", "security.md", "policy.md"),
    "The project": ("architecture.md", "contributing.md", "releasing.md", "changelog.md"),
}
"""In the order in which a newcomer reads. A page that stands in none of them is an error."""

CONFIGURATION = """\
site_name: mcp_probe
site_description: A profiler for MCP servers written in Python.
{repository}docs_dir: {docs}
site_dir: {site}
use_directory_urls: false
strict: true
extra_css: [wide.css]
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.top, toc.follow, content.code.copy, search.highlight]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {{icon: material/weather-night, name: Dark}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {{icon: material/weather-sunny, name: Light}}
plugins: [search]
markdown_extensions:
  - tables
  - pymdownx.highlight
  - pymdownx.superfences
  - toc:
      permalink: true
      slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}
validation:
  omitted_files: warn
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
nav:
{navigation}"""

# Reports are 100 columns wide, and are to be read without scrolling.
WIDE = """\
.md-grid { max-width: 84rem; }
.md-typeset pre > code { font-size: 0.62rem; line-height: 1.35; }
"""

FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")


class Broken(Exception):
    """The site cannot be shown; the message says why."""


def repository() -> str:
    """The one address of the project, or nothing."""
    found = re.search(r'^repository = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    return found[1].rstrip("/") if found else ""


def staged(target: str, page: Path) -> str | None:
    """Where a link of ``page`` leads on the site; ``None`` where it has no place there."""
    path, hash_, anchor = target.partition("#")
    if "://" in path or path.startswith("mailto:") or not path:
        return target
    file = (page.parent / path).resolve()
    inside = file.relative_to(ROOT).as_posix()
    if inside in FRONT:
        return FRONT[inside] + hash_ + anchor
    if inside.startswith("docs/") and file.suffix in {".md", ".png", ".svg"}:
        return inside.removeprefix("docs/") + hash_ + anchor
    return f"{repository()}/blob/main/{inside}" if repository() else None


def relinked(text: str, page: Path) -> str:
    """The page with its links as the site has them; code is left alone."""

    def replace(link: re.Match[str]) -> str:
        place = staged(link["target"], page)
        return link["text"] if place is None else f"{link['image']}[{link['text']}]({place})"

    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(replace, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(replace, text[at:])])


def stage(folder: Path) -> None:
    """Puts all pages and images below ``folder``, with links that fit."""
    (folder / "wide.css").write_text(WIDE, "utf-8")
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in FRONT)]:
        target = folder / FRONT.get(page.name, page.name)
        target.write_text(relinked(page.read_text("utf-8"), page), "utf-8")
    for image in [*(ROOT / "docs").rglob("*.png"), *(ROOT / "docs").rglob("*.svg")]:
        place = folder / image.relative_to(ROOT / "docs")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, place)


def configuration(docs: Path, site: Path) -> str:
    rows = []
    for title, pages in NAVIGATION.items():
        rows += [f"  - {title}:", *(f"      - {page}" for page in pages)]
    address = f"repo_url: {repository()}\n" if repository() else ""
    return CONFIGURATION.format(repository=address, docs=docs, site=site, navigation="\n".join(rows) + "\n")


class _Loads(HTMLParser):
    """Addresses that a browser fetches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "video", "audio"} and given.get("src"):
            self.found.append(str(given["src"]))
        if tag == "link" and given.get("rel") not in {"canonical", "prev", "next"} and given.get("href"):
            self.found.append(str(given["href"]))


def foreign_loads(site: Path) -> list[str]:
    """What the pages, or their style sheets, would load from another host."""
    found = []
    for page in sorted(site.rglob("*.html")):
        loads = _Loads()
        loads.feed(page.read_text("utf-8"))
        found += [f"{page.name}: {each}" for each in loads.found if re.match(r"(https?:)?//", each)]
    for sheet in sorted(site.rglob("*.css")):
        urls = re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", sheet.read_text("utf-8"))
        found += [f"{sheet.name}: {each}" for each in urls]
    return found


def build(site: Path) -> int:
    """Builds it and returns how many pages it has. Raises: Broken."""
    with tempfile.TemporaryDirectory() as work:
        docs = Path(work) / "pages"
        docs.mkdir()
        stage(docs)
        settings = Path(work) / "mkdocs.yml"
        settings.write_text(configuration(docs, site), "utf-8")
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--clean",
            "--config-file",
            str(settings),
        ]
        environment = {**os.environ, "DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "true"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        raise Broken(done.stdout + done.stderr)
    if foreign := foreign_loads(site):
        raise Broken("the site loads from other hosts:\n" + "\n".join(foreign))
    return len(list(site.rglob("*.html")))


def main() -> int:
    site = ROOT / "site"
    try:
        pages = build(site)
    except Broken as exc:
        print(f"make docs: {exc}", file=sys.stderr)
        return 1
    print(f"{site.name}/: {pages} pages; nothing in them is loaded from another host")
    return 0


if __name__ == "__main__":
    sys.exit(main())
