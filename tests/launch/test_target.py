"""Which process it is, and the sentence for each reason why it cannot be looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.errors import AttachError
from mcp_probe.launch.outside import target
from mcp_probe.launch.outside.target import find, permission_advice

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with one process, 77, of CPython 3.14, and this one's namespace."""
    own = tmp_path / "77"
    (own / "ns").mkdir(parents=True)
    (own / "status").write_text(
        "Name:\tpython\nState:\tS (sleeping)\nTgid:\t77\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\n"
    )
    (own / "cmdline").write_bytes(b"python\0server.py\0--port\0001\0")
    (own / "exe").symlink_to("/usr/bin/python3.14")
    (own / "cwd").symlink_to("/srv")
    (own / "maps").write_text("")
    (own / "ns" / "mnt").symlink_to("mnt:[1]")
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "mnt").symlink_to("mnt:[1]")
    return tmp_path


def complaint(pid: int, proc: Path = target.PROC) -> str:
    with pytest.raises(AttachError) as caught:
        find(pid, proc=proc)
    return str(caught.value)


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_python_process_is_found_with_version_command_and_folder(sleeping: subprocess.Popen[bytes]) -> None:
    while b"input" not in Path(f"/proc/{sleeping.pid}/cmdline").read_bytes():
        pass  # it is still a fork of this one
    found = find(sleeping.pid)
    assert found.python == VERSION
    assert found.command == (sys.executable, "-c", "input()")
    assert (found.uid, found.folder, found.stopped, found.unaskable) == (os.getuid(), os.getcwd(), False, "")
    assert os.path.samefile(found.interpreter, os.path.realpath(sys.executable))


def test_what_proc_says_is_read(proc: Path) -> None:
    found = find(77, proc=proc)
    assert (found.command, found.version, found.uid) == (("python", "server.py", "--port", "1"), (3, 14), 1000)


def test_no_such_process(proc: Path) -> None:
    assert complaint(78, proc) == "There is no process 78. `pgrep -af python` lists those that run."


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_zombie_is_told_so() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        said = complaint(child)
    finally:
        os.waitpid(child, 0)
    assert said.startswith(f"Process {child} has ended (a zombie): its parent, process {os.getpid()},")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_command_itself_is_refused() -> None:
    assert "this command itself" in complaint(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_launcher_names_the_python_below_it() -> None:
    with subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} -c 'print(1, flush=True); input()'; true"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:  # fmt: skip
        assert shell.stdout is not None and shell.stdout.readline() == b"1\n"
        said = complaint(shell.pid)
        shell.communicate(b"\n")
    assert "which is not Python. It has started one that is: mcp-probe attach " in said


def test_a_thread_names_its_process(proc: Path) -> None:
    status = proc / "77" / "status"
    status.write_text(status.read_text().replace("Tgid:\t77", "Tgid:\t70"))
    assert complaint(77, proc) == "77 is a thread of process 70. Attach to that: mcp-probe attach 70"


def test_a_thread_of_the_kernel_is_no_server(proc: Path) -> None:
    (proc / "77" / "exe").unlink()
    (proc / "77" / "cmdline").write_bytes(b"")
    assert "a thread of the kernel" in complaint(77, proc)


def test_another_users_process_is_named_with_its_user(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> str:
        raise PermissionError

    monkeypatch.setattr(os, "readlink", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    said = complaint(77, proc)
    assert said.startswith("Process 77 may not be looked at. It belongs to user ")
    assert said.endswith("or as root: sudo mcp-probe attach 77")


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            "1",
            "ptrace_scope is 1: only root may look into a process that it did not start. Use sudo mcp-probe attach 77",
        ),
        ("3", "ptrace_scope is 3: nobody may look into a process until the system is booted with less"),
        ("0", "--cap-add=SYS_PTRACE"),
    ],
)
def test_what_yama_says_decides_the_advice(scope: str, words: str, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yama = proc / "sys/kernel/yama"
    yama.mkdir(parents=True)
    (yama / "ptrace_scope").write_text(f"{scope}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert words in permission_advice(find(77, proc=proc), proc)


def test_another_container_is_told_before_its_interpreter_is_run(proc: Path) -> None:
    mount = proc / "77" / "ns" / "mnt"
    mount.unlink()
    mount.symlink_to("mnt:[2]")
    assert "runs in another container" in find(77, proc=proc).unaskable


@pytest.mark.parametrize(
    ("mapped", "version"),
    [
        ("7f00 r-xp 00 08:01 1 /opt/lib/libpython3.15.so.1.0", (3, 15)),
        ("7f00 r-xp 00 08:01 1 /opt/lib/python3.13/lib-dynload/math.cpython-313-x86_64-linux-gnu.so", (3, 13)),
    ],
)
def test_python_built_into_another_program_is_known_by_what_is_mapped(
    mapped: str, version: tuple[int, int], proc: Path
) -> None:
    (proc / "77" / "exe").unlink()
    (proc / "77" / "exe").symlink_to("/opt/frozen-server")
    (proc / "77" / "maps").write_text(f"7e00 r-xp 00 08:01 1 /opt/frozen-server\n{mapped}\n")
    found = find(77, proc=proc)
    assert found.version == version
    assert "is built into /opt/frozen-server" in found.unaskable


def test_an_interpreter_whose_file_was_replaced_is_still_one(proc: Path) -> None:
    (proc / "77" / "exe").unlink()
    (proc / "77" / "exe").symlink_to("/usr/bin/python3.14 (deleted)")
    found = find(77, proc=proc)
    assert (found.executable, found.version, found.unaskable) == ("/usr/bin/python3.14", (3, 14), "")


def test_a_system_without_proc_is_told_what_to_do_instead(tmp_path: Path) -> None:
    assert "mcp-probe run -- COMMAND" in complaint(77, tmp_path / "none")
