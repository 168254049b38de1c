"""Files of ours are their owner's alone, and a link in their place is left alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_probe import cli
from mcp_probe.launch.parent import _open_recording
from mcp_probe.record.file import RecordingWriter
from mcp_probe.record.private_file import create


def recorded_by_a_run(path: Path) -> Any:
    opened = _open_recording(path)
    assert opened is not None
    return opened[0]


WAYS: list[Callable[[Path], Any]] = [create, RecordingWriter, recorded_by_a_run, cli._opened]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("existed", [False, True])
def test_only_the_owner_may_read_it(way: Callable[[Path], Any], existed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if existed:
        path.write_text("before")
        path.chmod(0o666)
    before = os.umask(0)
    try:
        way(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "before" not in path.read_text("utf-8")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dangles", [False, True])
def test_a_link_is_not_followed(way: Callable[[Path], Any], dangles: bool, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    if not dangles:
        other.write_text("precious")
    link.symlink_to(other)
    with pytest.raises(Exception, match="symbolic link"):
        way(link)
    assert not other.exists() if dangles else other.read_text() == "precious"


def test_the_links_of_the_system_are_followed(capfd: pytest.CaptureFixture[str]) -> None:
    with create("/dev/stdout") as stream:
        stream.write(b"shown")
    assert "shown" in capfd.readouterr().out
