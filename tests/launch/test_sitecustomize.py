"""What a Python below the command does before its program starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from mcp_probe.launch import inject
from tests.launch.running import LIMIT_S, environment

SHOW = "import sys; print(sys.modules['sitecustomize'].__file__)"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = inject.make_run_folder()
    yield made
    shutil.rmtree(made)


def python(
    folder: Path, source: str, *options: str, pythonpath: str = "", **added: str
) -> subprocess.CompletedProcess[str]:
    """Runs ``source`` in a Python that was told to load the probe of ``folder``."""
    env = inject.environment(folder, environment(PYTHONPATH=pythonpath, **added))
    return subprocess.run(
        [sys.executable, *options, "-c", source], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def kinds(folder: Path) -> list[str]:
    return [seen.kind for seen in inject.processes_seen(folder)]


def test_a_python_that_serves_nothing_is_listed_and_loads_no_more_than_the_trigger(folder: Path) -> None:
    done = python(folder, "import sys; print(sorted(m for m in sys.modules if m.startswith('mcp_probe')))")
    assert done.stdout == "['mcp_probe', 'mcp_probe.launch', 'mcp_probe.launch.child']\n"
    assert kinds(folder) == ["python"]


def test_the_injected_folder_is_gone_from_the_path_and_the_package_still_importable(folder: Path) -> None:
    source = f"import sys, mcp_probe.histogram; print([p for p in sys.path if p.startswith({str(folder)!r})])"
    done = python(folder, source, cwd="")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_modules_needed_after_the_run_has_ended_are_still_there(folder: Path) -> None:
    gone = f"import shutil; shutil.rmtree({str(folder / 'inject')!r})"
    done = python(folder, f"{gone}; import mcp_probe.histogram, mcp_probe.launch.outcome")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_next_sitecustomize_is_loaded_in_our_place(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "sitecustomize.py"
    theirs.write_text("print('theirs')\n")
    assert python(folder, SHOW, pythonpath=str(tmp_path)).stdout == f"theirs\n{theirs}\n"


def test_without_a_next_one_ours_stays(folder: Path) -> None:
    if find_spec("sitecustomize") is not None:
        pytest.skip("this Python has a sitecustomize of its own")  # Debian's
    assert python(folder, SHOW).stdout == f"{folder / 'inject' / 'sitecustomize.py'}\n"


def test_an_error_in_the_next_one_is_reported_as_the_interpreter_would(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module\n")
    done = python(folder, "print('runs')", pythonpath=str(tmp_path))
    assert done.stdout == "runs\n"
    assert "No module named 'no_such_module'" in done.stderr


def test_a_wrapper_that_hides_us_and_execs_is_seen_through(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs', flush=True)\n")
    wrapper = (
        "import os, sys\n"
        f"os.environ['PYTHONPATH'] = {str(tmp_path)!r} + os.pathsep + os.environ['PYTHONPATH']\n"
        "os.execlp(sys.executable, sys.executable, '-c', 'print(1)')\n"
    )
    assert python(folder, wrapper).stdout == "theirs\n1\n"
    assert kinds(folder) == ["python", "python"]


def test_a_run_inside_a_run_belongs_to_the_inner_one(folder: Path) -> None:
    inner = inject.make_run_folder()
    env = inject.environment(inner, inject.environment(folder, environment()))
    subprocess.run([sys.executable, "-c", ""], env=env, timeout=LIMIT_S, check=True)
    assert (kinds(inner), kinds(folder)) == (["python"], [])


def test_a_python_too_old_says_so_and_runs_its_program(folder: Path) -> None:
    source = (
        f"import sys; sys.version_info = (3, 9, 18); sys.path.insert(0, {str(folder / 'inject')!r})\n"
        "import sitecustomize; print('mcp_probe' in sys.modules)"
    )
    assert python(folder, source, "-S").stdout == "False\n"
    (seen,) = inject.processes_seen(folder)
    assert (seen.kind, seen.python) == ("old", "3.9.18")


def test_a_probe_that_cannot_start_is_listed_and_the_program_runs(folder: Path) -> None:
    (folder / "inject" / "mcp_probe").unlink()
    (folder / "inject" / "mcp_probe.py").write_text("raise RuntimeError('no probe\\ttoday')\n")
    done = python(folder, "print('runs')")
    assert (done.stdout, done.stderr) == ("runs\n", "")
    assert kinds(folder) == ["python", "failed"]
    assert inject.processes_seen(folder)[-1].detail == "RuntimeError: no probe today"


def test_a_program_that_outlives_the_run_notices_nothing(folder: Path) -> None:
    (folder / "processes").unlink()
    done = python(folder, "print('runs')")
    assert (done.stdout, done.stderr) == ("runs\n", "")


def test_importing_the_module_by_its_own_name_does_nothing() -> None:
    source = "import sys, mcp_probe.launch.sitecustomize; print(sys.meta_path == before)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; before = list(sys.meta_path); {source}"],
        env={**os.environ, "PYTHONPATH": str(Path(inject.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == "True\n"
