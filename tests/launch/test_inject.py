"""The private folder of a run and the environment it adds."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.launch import inject


@pytest.fixture
def folder() -> Iterator[Path]:
    made = inject.make_run_folder()
    yield made
    shutil.rmtree(made)


def test_the_folder_is_private_and_injects_nothing_but_the_package(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in (folder / "inject").iterdir()) == ["mcp_probe", "sitecustomize.py"]
    assert (folder / "inject" / "mcp_probe" / "model.py").is_file()


def test_the_package_is_copied_where_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*unused: object, **also_unused: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    made = inject.make_run_folder()
    package = made / "inject" / "mcp_probe"
    assert package.is_dir()
    assert not package.is_symlink()
    shutil.rmtree(made)


def test_removing_the_folder_leaves_the_package_alone(folder: Path) -> None:
    other = inject.make_run_folder()
    shutil.rmtree(other)
    assert Path(inject.__file__).is_file()


@pytest.mark.parametrize("name", ["long" * 25, f"with{os.pathsep}separator"])
def test_a_temporary_folder_with_an_awkward_name_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    deep = tmp_path / name
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    made = inject.make_run_folder()
    inject.listen(made).close()
    shutil.rmtree(made)
    assert list(deep.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_written_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(LaunchError, match="set TMPDIR"):
        inject.make_run_folder()


@pytest.mark.parametrize(
    ("inherited", "rest"), [({}, ""), ({"PYTHONPATH": ""}, ""), ({"PYTHONPATH": "a:b"}, os.pathsep + "a:b")]
)
def test_pythonpath_gains_one_entry_in_front_and_no_empty_one(inherited: dict[str, str], rest: str) -> None:
    added = inject.environment(Path("/run"), {"HOME": "/h", **inherited})
    assert added["PYTHONPATH"] == "/run/inject" + rest
    assert added["HOME"] == "/h"


def test_options_travel_as_environment_variables() -> None:
    assert inject.environment(Path("/run"), {}, slow_step_ms=2.5)["MCP_PROBE_SLOW_STEP_MS"] == "2.5"


def test_a_damaged_line_in_the_list_of_processes_is_passed_over(folder: Path) -> None:
    (folder / "processes").write_text(
        "python\t12\t3.13.0\t/bin/python\t\nhalf a li\nmcp\tx\t3\t/p\t\nold\t13\t2.7.18\tpy\t\n"
    )
    assert [seen.pid for seen in inject.processes_seen(folder)] == [12, 13]
