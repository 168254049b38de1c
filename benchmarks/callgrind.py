"""Runs a server under valgrind's callgrind, and reads how many instructions each of its threads has executed.

Only calls are counted, and not the start: callgrind writes its counters and sets them to 0 whenever the server asks it
to (:func:`write_counters`). A block of N calls and one of 2 N differ by N calls; what is done once a block is in both.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SLOW = 1_000
"""How much slower time passes for the server. Valgrind makes it tens of times slower, and a busy machine even more: by
its own clock it is still quicker than it really is, so no step is slow, no look is due and no timer fires."""
CLOCK = Path(__file__).with_name("slow_clock.c")
THREAD = re.compile(r"^Thread (\d+): status = .*\(lwpid (\d+)\)$", re.M)
"""What a thread is called by callgrind, and by the system."""
TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.M)


def missing() -> str | None:
    """The reason why nothing can be counted here; ``None``: it can."""
    if not sys.platform.startswith("linux"):
        return "Instructions are counted on Linux only."
    tools = [tool for tool in ("valgrind", "cc") if shutil.which(tool) is None]
    return f"Not installed here: {', '.join(tools)}." if tools else None


def build_clock(folder: Path) -> Path:
    """The slow clock as a library to preload. Raises: CalledProcessError where it does not compile."""
    library = folder / "slow_clock.so"
    command = ["cc", "-O2", "-fPIC", "-shared", f"-DSLOW={SLOW}", "-o", str(library), str(CLOCK), "-ldl"]
    subprocess.run(command, check=True)
    return library


def command_of(program: Sequence[str], folder: Path) -> list[str]:
    """``program`` under callgrind, which writes into ``folder``."""
    options = ["--tool=callgrind", "--quiet", "--separate-threads=yes", "--fair-sched=yes", "--instr-atstart=no"]
    return ["valgrind", *options, f"--log-file={folder}/log", f"--callgrind-out-file={folder}/counted", *program]


def environment(clock: Path) -> dict[str, str]:
    """For the measured process: nothing that makes two runs differ, and nothing of the caller's probe."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCP_PROBE_", "OTEL_"))}
    return {**kept, "PYTHONHASHSEED": "0", "LD_PRELOAD": str(clock)}


def write_counters() -> None:
    """Have callgrind write what it has counted so far, in the process that it counts in."""
    ctypes.CDLL(None).write_counters()


def dumps_in(folder: Path) -> dict[int, dict[int, int]]:
    """Instructions of each thread, by number, in each dump, by number."""
    found: dict[int, dict[int, int]] = {}
    for file in folder.glob("counted.*-*"):
        number, thread = (int(part) for part in file.suffix[1:].split("-"))
        found.setdefault(number, {})[thread] = total_of(file.read_text("utf-8", "replace"))
    return found


def total_of(text: str) -> int:
    """Instructions in the text of one dump of one thread. Raises: ValueError where it has no total."""
    found = TOTAL.search(text)
    if found is None:
        raise ValueError("A file of callgrind's has neither a summary nor totals.")
    return int(found[1])


def threads_in(log: str) -> dict[int, int]:
    """The system's id of each thread, by its number in the dumps: of two that had the same number, the later one's."""
    return {int(thread): int(native) for thread, native in THREAD.findall(log)}


def by_name(counted: Mapping[int, int], natives: Mapping[int, int], names: Mapping[int, str]) -> dict[str, int]:
    """Instructions by name of thread; of one name they are summed. ``natives``: as in the log; ``names``: by native id.

    Raises: ValueError where a thread has no name that has executed something.
    """
    found = dict.fromkeys(names.values(), 0)
    for thread, instructions in counted.items():
        name = names.get(natives.get(thread, 0))
        if name is not None:
            found[name] += instructions
        elif instructions:
            raise ValueError(f"Thread {thread} has executed {instructions} instructions, and has no name.")
    return found


def per_call(short: Mapping[str, int], long: Mapping[str, int], calls: int) -> dict[str, float]:
    """Instructions a call, by thread: what ``calls`` calls more have added."""
    return {name: (long[name] - short.get(name, 0)) / calls for name in long}
