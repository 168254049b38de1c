"""Files of ours are their owner's alone, and a link in their place is left alone."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mcp_probe
from mcp_probe.launch.parent import Recordings
from mcp_probe.record.parts import RecordingWriter
from mcp_probe.record.private_file import check, create, opened, write

ROOT = Path(__file__).resolve().parents[2]


def recorded_by_a_run(path: Path) -> Any:
    return Recordings(path, None)


class CheckedAndWritten:
    """As `bench` and `load` do it: the file is tried before minutes are spent."""

    def __init__(self, path: Path) -> None:
        check(path)
        write(path, "after")

    def close(self) -> None: ...


WAYS: list[Callable[[Path], Any]] = [create, RecordingWriter, recorded_by_a_run, opened, CheckedAndWritten]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("existed", [False, True])
def test_only_the_owner_may_read_it(way: Callable[[Path], Any], existed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if existed:
        path.write_text("older content")
        path.chmod(0o666)
    before = os.umask(0)
    try:
        way(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "older content" not in path.read_text("utf-8")


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


def test_trying_a_file_leaves_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older content")
    check(path)
    assert path.read_text() == "older content"


WRITES = re.compile(r"""\.write_(?:text|bytes)\(|\.touch\(|\bopen\([^)]*["'][rb+]*[wax][bt+]*["']|O_CREAT""")
ELSEWHERE = {
    "record/private_file.py": "where it is done",
    "launch/inject.py": "in a folder of mode 0700, with mode 0600",
    "workloads/servers/serving.py": "in a folder of mode 0700: the port of a bundled server",
    "workloads/servers/delays.py": "with mode 0600: starts of a bundled server, one line a process",
    "query/parquet.py": "in a folder of mode 0700, which stays so: pieces of a recording, and which one it was",
    "workloads/demo.py": "in a folder of mode 0700: stderr of a bundled server",
    "workloads/bench/serving.py": "the same",
    "workloads/scenarios/providers.py": "the same",
    "workloads/certificates.py": "with mode 0600: the key of a bundled server",
    "workloads/servers/resident.py": "a word to the kernel, in /proc",
}


def test_nothing_else_writes_files() -> None:
    package = Path(mcp_probe.__file__).parent
    found = {
        path.relative_to(package).as_posix() for path in package.rglob("*.py") if WRITES.search(path.read_text("utf-8"))
    }
    assert found == set(ELSEWHERE)


def test_every_option_that_names_a_file_makes_a_private_one(tmp_path: Path) -> None:
    """Each command that writes, with all its files, where the user's own mask hides nothing."""
    recording = ROOT / "tests" / "data" / "recording-v1.jsonl"
    server = [sys.executable, "-c", "pass"]
    script = ["--url", "http://127.0.0.1:1/mcp", "--tool", "x", "--export", "k6", "--header", "Authorization: x"]
    stdio = f"{sys.executable} -m mcp_probe.workloads.servers.delays"
    load = ["--server", stdio, "--tool", "wait", "--arguments", '{"delay_ms": 1}', "--count", "2", "--rate", "50"]
    commands = [
        ["run", "--output", "1", "--json", "2", "--record", "3", "--", *server],
        ["report", str(recording), "--json", "4"],
        ["load", *script, "--to", "5"],
        ["load", *load, "--json", "6", "--stderr", "7"],
    ]
    for command in commands:
        call = [sys.executable, "-m", "mcp_probe", *command]
        done = subprocess.run(call, cwd=tmp_path, umask=0, capture_output=True, text=True, timeout=100)
        assert done.returncode in (0, 1), done.stderr
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys("1234567", 0o600)


def test_the_links_of_the_system_are_followed(capfd: pytest.CaptureFixture[str]) -> None:
    with create("/dev/stdout") as stream:
        stream.write(b"shown")
    assert "shown" in capfd.readouterr().out
