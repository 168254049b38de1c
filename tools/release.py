"""`make release`: what is in dist/ is checked, installed where it fits and run; then its checksums and an SBOM.

Nothing is published. release/ gets SHA256SUMS (as `sha256sum --check` reads it, from the folder of the files),
sbom.cdx.json (CycloneDX) and release.json (what was checked, and on which interpreters).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_sdist_filename, parse_wheel_filename

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.interpreters import ROOT, VERSIONS, Absent, Interpreter, interpreter
from tools.matrix import uv

DEMO_PACKAGES = ROOT / "requirements" / "cell-mcp2.3.txt"
"""What `mcp-probe demo` serves with, hash-pinned."""

CHECK_S = 600


class Failed(Exception):
    """What is in dist/ must not be released; the message says why."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One wheel on one interpreter."""

    python: str
    wheel: str
    accelerator: str
    report: str


def run(command: Sequence[str | Path]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MCP_PROBE", "PYTHON"))}
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=CHECK_S,
        env=environment,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:6]))} …: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def packages_in(dist: Path) -> tuple[Path, list[Path]]:
    """The sdist and the wheels, all of the version that the source says."""
    text = (ROOT / "mcp_probe" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.M)
    sdists, wheels = sorted(dist.glob("*.tar.gz")), sorted(dist.glob("*.whl"))
    if found is None or len(sdists) != 1 or not any(wheel.name.endswith("-none-any.whl") for wheel in wheels):
        raise Failed(f"{dist} has {len(sdists)} sdists and {len(wheels)} wheels. Run `make wheels`.")
    versions = {
        str(parse_sdist_filename(sdists[0].name)[1]),
        *(str(parse_wheel_filename(each.name)[1]) for each in wheels),
    }
    if versions != {found[1]}:
        raise Failed(
            f"{dist} has version {', '.join(sorted(versions))}, and the source is {found[1]}. Run `make wheels`."
        )
    return sdists[0], wheels


def check_contents(files: Sequence[Path], wheels: Sequence[Path]) -> None:
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    run([Path(sys.executable).with_name("check-wheel-contents"), "--no-config", *wheels])


def fits(wheel: Path, version: str) -> bool:
    """Whether pip of CPython ``version`` on this machine would take it."""
    major, minor = map(int, version.split(".")[:2])
    tags: set[Tag] = {*cpython_tags((major, minor)), *compatible_tags((major, minor), f"cp{major}{minor}")}
    return not tags.isdisjoint(parse_wheel_filename(wheel.name)[3])


def tried(python: Interpreter, wheel: Path, work: Path) -> Ran:
    """Installs it into a clean environment and runs the demo there. Raises: Failed."""
    folder = work / f"{python.version}-{wheel.stem[-24:]}"
    run([python.command, "-m", "venv", "--without-pip", folder])  # Debian's interpreters have no ensurepip
    installs: list[str | Path] = [uv(), "pip", "install", "--quiet", "--no-progress"]
    installs += ["--python", folder / "bin" / "python"]
    run([*installs, "--require-hashes", "--requirements", DEMO_PACKAGES])
    run([*installs, "--no-index", "--no-deps", wheel])
    native = "from mcp_probe import native; print(native.state())"
    state = run([folder / "bin" / "python", "-c", native]).strip()
    wanted = "not built here" if wheel.name.endswith("-none-any.whl") else "active"
    if state != wanted:
        raise Failed(f"{wheel.name} on CPython {python.version}: the accelerator is {state!r}, expected {wanted!r}.")
    report = run([folder / "bin" / "mcp-probe", "demo", "--seconds", "2", "--no-color"])
    first = report.splitlines()[0]
    if not re.search(r"[1-9]\d* requests", first) or "Verdict" not in report:
        raise Failed(f"{wheel.name} on CPython {python.version}: the demo printed no report:\n{report}")
    shutil.rmtree(folder)
    return Ran(python.version, wheel.name, state, first)


def runs_of(wheels: Sequence[Path], versions: Sequence[str], work: Path) -> Iterator[Ran | str]:
    for version in versions:
        try:
            python = interpreter(version, unpack=False)
        except Absent as exc:
            yield f"not tried: {exc}"
            continue
        for wheel in wheels:
            if fits(wheel, version):
                yield tried(python, wheel, work)


def is_reproducible(sdist: Path, wheels: Sequence[Path], work: Path) -> str:
    """Whether the pure wheel, built anew from the sdist, has the same bytes."""
    (pure,) = [wheel for wheel in wheels if wheel.name.endswith("-none-any.whl")]
    builder = ROOT / ".cells" / "wheels" / "bin" / "python"
    if not builder.exists():
        return "not tried: .cells/wheels is missing (make wheels)"
    source = work / "source"
    source.mkdir()
    run(["tar", "-xzf", sdist, "-C", source, "--strip-components=1"])
    out = work / "again"
    environment = ["env", "MCP_PROBE_BUILD=pure"]
    run([*environment, builder, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, source])
    (again,) = out.iterdir()
    if again.read_bytes() == pure.read_bytes():
        return f"{pure.name}: built anew from the sdist it has the same bytes"
    raise Failed(f"{pure.name}: built anew from the sdist it differs. Was SOURCE_DATE_EPOCH the same?")


def bill_of_materials(wheel: Path, work: Path, to: Path) -> None:
    """What a plain installation has: the package and its dependencies, of which there are none."""
    folder = work / "sbom"
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    site = run([folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    run([sys.executable, "-m", "zipfile", "-e", wheel, site])
    pyproject: list[str | Path] = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library"]
    tool: list[str | Path] = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--of",
        "JSON",
        "-o",
        to,
    ]
    run([*tool, "--validate", *pyproject, folder / "bin" / "python"])
    names = {each["name"] for each in json.loads(to.read_text("utf-8")).get("components", [])}
    if names - {"mcp-probe-profiler"}:
        raise Failed(f"A plain installation brings {sorted(names)}; the package must bring nothing but itself.")


def checksums(files: Sequence[Path]) -> str:
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--to", type=Path, default=ROOT / "release")
    parser.add_argument("--pythons", nargs="*", default=list(VERSIONS), metavar="3.X")
    chosen = parser.parse_args()
    try:
        return release(chosen.dist.resolve(), chosen.to.resolve(), chosen.pythons)
    except Failed as exc:
        print(f"make release: {exc}", file=sys.stderr)
        return 1


def release(dist: Path, to: Path, versions: Sequence[str]) -> int:
    sdist, wheels = packages_in(dist)
    files = [sdist, *wheels]
    check_contents(files, wheels)
    print(f"{len(files)} files: `twine check --strict` and `check-wheel-contents` pass")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        again = is_reproducible(sdist, wheels, work)
        print(again)
        bill_of_materials(
            next(each for each in wheels if each.name.endswith("-none-any.whl")), work, to / "sbom.cdx.json"
        )
        ran = []
        for each in runs_of(wheels, versions, work):
            print(
                each
                if isinstance(each, str)
                else f"CPython {each.python}: {each.wheel} ({each.accelerator}): {each.report}"
            )
            ran.append(each if isinstance(each, str) else asdict(each))
    (to / "SHA256SUMS").write_text(checksums(files))
    about = {"version": str(parse_sdist_filename(sdist.name)[1]), "reproducible": again, "runs": ran}
    (to / "release.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{to.name}/: SHA256SUMS, sbom.cdx.json, release.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
