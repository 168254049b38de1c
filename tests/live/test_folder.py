"""The folder of live sockets: whose it must be, what is left over in it."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_probe.errors import LiveError
from mcp_probe.live import folder


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Names of sockets are short, so the folder's must be."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


def test_it_is_made_for_its_owner_alone(runtime: Path) -> None:
    made = folder.make()
    assert made == runtime / "mcp-probe"
    assert made.stat().st_mode & 0o777 == 0o700
    assert folder.make() == made


def test_without_a_runtime_folder_it_is_in_the_temporary_one_under_the_users_number(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(runtime))
    assert runtime / f"mcp-probe-{os.geteuid()}" in folder.candidates()
    assert Path("/tmp") / f"mcp-probe-{os.geteuid()}" in folder.candidates()  # where a server without TMPDIR would be


def test_a_runtime_folder_that_is_not_ours_is_passed_over(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "own_uid", lambda: 4_242_424)
    assert not [path for path in folder.candidates() if runtime in path.parents]


@pytest.mark.parametrize(("mode", "words"), [(0o755, "lets other users in"), (0o770, "mode 0770")])
def test_a_folder_that_lets_others_in_is_refused_with_what_to_do(runtime: Path, mode: int, words: str) -> None:
    (runtime / "mcp-probe").mkdir()
    (runtime / "mcp-probe").chmod(mode)
    assert words in str(folder.complaint_about(runtime / "mcp-probe"))
    assert "chmod 700" in str(folder.complaint_about(runtime / "mcp-probe"))
    assert folder.sockets(runtime / "mcp-probe") == []


def test_a_link_and_a_file_are_no_folders(runtime: Path) -> None:
    (runtime / "real").mkdir(mode=0o700)
    (runtime / "link").symlink_to(runtime / "real")
    (runtime / "file").touch()
    assert "is no folder" in str(folder.complaint_about(runtime / "link"))
    assert "is no folder" in str(folder.complaint_about(runtime / "file"))


def test_another_users_folder_is_refused_by_name(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "mcp-probe").mkdir(mode=0o700)
    owner = (runtime / "mcp-probe").stat().st_uid
    monkeypatch.setattr(folder, "own_uid", lambda: owner + 1)
    assert f"belongs to another user (uid {owner})" in str(folder.complaint_about(runtime / "mcp-probe"))


def test_where_no_folder_can_be_used_the_sentence_says_why(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "mcp-probe").mkdir()
    (runtime / "mcp-probe").chmod(0o755)
    monkeypatch.setattr(folder, "candidates", lambda: [runtime / "mcp-probe", runtime / "missing" / "mcp-probe"])
    with pytest.raises(LiveError, match=r"lets other users in .*; .* cannot be made .*set XDG_RUNTIME_DIR"):
        folder.make()


def test_sockets_that_processes_left_behind_are_removed_and_living_ones_stay(runtime: Path) -> None:
    place = folder.make()
    living, path = folder.listen(place)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place / "99999999.sock"))
    (place / "notes.txt").touch()
    assert folder.sockets(place) == [path]
    assert sorted(entry.name for entry in place.iterdir()) == [path.name, "notes.txt"]
    living.close()
    assert folder.sockets(place) == []


def test_two_probes_of_one_process_have_a_socket_each(runtime: Path) -> None:
    place = folder.make()
    first, path = folder.listen(place)
    second, other = folder.listen(place)
    assert [path.name, other.name] == [f"{os.getpid()}.sock", f"{os.getpid()}-2.sock"]
    assert folder.sockets(place) == [path, other]
    first.close()
    second.close()


def test_a_socket_of_a_process_that_had_the_same_number_is_taken_over(runtime: Path) -> None:
    place = folder.make()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place / f"{os.getpid()}.sock"))
    listener, path = folder.listen(place)
    assert path.name == f"{os.getpid()}.sock"
    assert folder.is_answering(path)
    listener.close()


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    assert folder.uid_of_peer(ours) == os.geteuid()
    ours.close()
    theirs.close()


def test_probes_that_start_at_once_have_a_socket_each(runtime: Path) -> None:
    place = folder.make()
    for _ in range(50):
        together = threading.Barrier(4)

        def listen(together: threading.Barrier = together) -> tuple[socket.socket, Path]:
            together.wait()
            return folder.listen(place)

        with ThreadPoolExecutor(4) as pool:
            made = [future.result() for future in [pool.submit(listen) for _ in range(4)]]
        assert sorted(folder.sockets(place)) == sorted(path for _, path in made)
        for listener, path in made:
            listener.close()
            path.unlink()
