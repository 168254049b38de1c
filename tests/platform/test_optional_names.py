"""Names that Windows or macOS lacks: the code of a profiled server asks for each before it uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.optional_names import Use, optional_names, uses

PACKAGE = Path(__file__).parents[2] / "mcp_probe"
NOT_IN_SERVERS = (
    "__main__.py", "cli.py", "compare", "completion.py", "init", "predict", "query", "report/page/written.py",
    "top", "workloads",
)  # fmt: skip
NOT_WITHOUT = {"win32": ("launch",), "darwin": ("launch/signals.py",)}
"""Windows refuses the commands that run servers. The parent of `mcp-probe run` looks at the system first."""


def in_servers(platform: str) -> Iterator[tuple[str, Use]]:
    """(file, use) of each name that the code of a profiled server takes, and ``platform`` lacks."""
    exempt = (*NOT_IN_SERVERS, *NOT_WITHOUT[platform])
    for path in sorted(PACKAGE.rglob("*.py")):
        if not any(path.is_relative_to(PACKAGE / part) for part in exempt):
            found = uses(path.read_text(encoding="utf-8"), platform)
            yield from ((str(path.relative_to(PACKAGE)), use) for use in found)


def used_in_servers(platform: str) -> set[tuple[str, str]]:
    """(module, name) of each; an empty name is the whole module."""
    return {(use.module, use.name) for _, use in in_servers(platform)}


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_what_a_platform_lacks_is_asked_for(platform: str) -> None:
    found = list(in_servers(platform))
    assert len(found) > 4
    assert [f"{file}:{use.line} {use.module}.{use.name}" for file, use in found if not use.is_asked_for] == []


def test_the_stubs_say_what_a_platform_lacks() -> None:
    windows, mac = (
        {module: optional_names(module, platform) for module in ("os", "time", "socket", "fcntl", "signal")}
        for platform in ("win32", "darwin")
    )
    assert {"O_CLOEXEC", "pread", "register_at_fork", "geteuid", "sched_getaffinity"} <= windows["os"]
    assert windows["fcntl"] >= {"ioctl", "flock"} and not mac["fcntl"] & {"ioctl", "flock"}
    assert "pthread_getcpuclockid" in windows["time"] & mac["time"]
    assert "AF_UNIX" in windows["socket"] and "SIGHUP" in windows["signal"] - mac["signal"]
    assert not {"open", "getpid", "O_RDONLY", "replace"} & windows["os"]
    assert "sched_getaffinity" in mac["os"] and "O_CLOEXEC" not in mac["os"]


@pytest.mark.parametrize(
    ("source", "asked_for"),
    [
        ("import os\nos.pread(1, 2, 3)", False),
        ("import os\ndef f():\n    if hasattr(os, 'pread'):\n        os.pread(1, 2, 3)", True),
        ("import os\nif hasattr(os, 'pread'):\n    def f():\n        os.pread(1, 2, 3)", False),
        ("import os\ntry:\n    os.pread(1, 2, 3)\nexcept (AttributeError, OSError):\n    pass", True),
        ("import os\ntry:\n    os.pread(1, 2, 3)\nexcept OSError:\n    pass", False),
        ("import os\ntry:\n    def f():\n        os.pread(1, 2, 3)\nexcept AttributeError:\n    pass", False),
        ("import os\nwith suppress(AttributeError):\n    os.pread(1, 2, 3)", True),
        ("import os\ngetattr(os, 'pread', None)", True),
        ("import fcntl", False),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", True),
        ("from os import pread", False),
        ("try:\n    from os import pread\nexcept ImportError:\n    pread = None", True),
    ],
)
def test_a_name_counts_as_asked_for_where_its_absence_is_handled(source: str, asked_for: bool) -> None:
    *_, last = uses(source, "win32")
    assert last.is_asked_for == asked_for
