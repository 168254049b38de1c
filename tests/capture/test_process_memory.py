"""What counts as growth of the process: not the pages of files, and not what `malloc` has free."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcp_probe.capture import process_memory
from mcp_probe.capture.proc_files import private_bytes, rss_bytes
from mcp_probe.capture.process_memory import ProcessMemory, free_in_heap, used_in_heap

MB = 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what of a process are pages of files")
def test_a_file_that_is_mapped_is_resident_and_not_the_processs_own(tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(bytes(40 * MB))
    resident, private = rss_bytes(), private_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[at] for at in range(0, 40 * MB, 4096)) == 0
        after, private_after = rss_bytes(), private_bytes()
    assert resident is not None and private is not None and after is not None and private_after is not None
    assert after - resident > 30 * MB
    assert private_after - private < 5 * MB


@pytest.mark.parametrize("native_mb", [0, 2])
def test_what_a_look_of_ours_leaves_behind_is_no_growth(monkeypatch: pytest.MonkeyPatch, native_mb: int) -> None:
    """(resident, asked for): a look takes 5 MB, of which 1 MB is still in use; then the server takes 3 MB.

    What native code of the server takes meanwhile is growth: with looks of 2 s, a leak of 100 kB a call was none.
    """
    memory = ProcessMemory()
    resident, asked, used = [50 * MB], [2 * MB], [1 * MB]
    monkeypatch.setattr(process_memory, "private_bytes", lambda: resident[0])
    monkeypatch.setattr(process_memory, "tracing_state", lambda: 1)
    monkeypatch.setattr(process_memory, "held_by", lambda raw: 0)
    hooks = SimpleNamespace(memory=SimpleNamespace(state=lambda: {"table_bytes": 0}))
    monkeypatch.setattr(process_memory, "native", hooks)
    traced = SimpleNamespace(get_traced_memory=lambda: (asked[0], 0), get_tracemalloc_memory=lambda: 0)
    monkeypatch.setattr(process_memory, "tracemalloc", traced)
    monkeypatch.setattr(memory, "_free", lambda: 0)
    monkeypatch.setattr(memory, "_used", lambda: used[0])
    monkeypatch.setattr(process_memory, "WORDS_SHARE", 0.0)
    before = memory.read()
    with memory.leaving_holes():
        resident[0] += (5 + native_mb) * MB
        asked[0] += 1 * MB
        used[0] += (1 + native_mb) * MB
    between = memory.read()
    resident[0] += 3 * MB
    after = memory.read()
    assert before is not None and between is not None and after is not None
    assert between[0] - between[1] == before[0] - before[1] + native_mb * MB
    assert after[0] - after[1] == between[0] - between[1] + 3 * MB


def test_what_native_code_takes_is_handed_out_by_the_heap() -> None:
    used = used_in_heap()
    if not used():
        pytest.skip("this is not glibc, or one older than 2.33")
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = used()
    blocks = [libc.malloc(size) for size in (100_000, 10 * MB)]
    taken = used() - before
    for block in blocks:
        libc.free(block)
    assert 10.1 * MB <= taken < 10.3 * MB


def test_holes_in_the_heap_are_free() -> None:
    """60 MB in blocks of 3 000 bytes, nine in ten of them freed."""
    free = free_in_heap()
    if not free():
        pytest.skip("this is not glibc, or one older than 2.33")
    blocks = [bytes(3_000) for _ in range(20_000)]
    before = free()
    kept = blocks[::10]
    del blocks
    assert free() - before > 45 * MB
    assert len(kept) == 2_000
