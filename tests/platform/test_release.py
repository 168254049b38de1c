"""What a release is checked for, the workflows that make one, and the files beside them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

import mcp_probe
from tools import first_minutes, release, wheels
from tools.interpreters import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
METADATA = (
    "import sys; from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))"
)

workflows = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


# --- tools/release.py -------------------------------------------------------------------------------------------------


def files_in(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


VERSION = mcp_probe.__version__
SDIST, PURE = f"mcp_probe_profiler-{VERSION}.tar.gz", f"mcp_probe_profiler-{VERSION}-py3-none-any.whl"


def test_files_of_another_version_and_missing_ones_are_refused(tmp_path: Path) -> None:
    files_in(tmp_path, SDIST, PURE)
    assert release.packages_in(tmp_path) == (tmp_path / SDIST, [tmp_path / PURE])
    files_in(tmp_path, "mcp_probe_profiler-9.9-cp312-cp312-manylinux_2_17_x86_64.whl")
    with pytest.raises(release.Failed, match=r"9\.9"):
        release.packages_in(tmp_path)
    with pytest.raises(release.Failed, match="0 sdists"):
        release.packages_in(tmp_path / "nowhere")


@pytest.mark.skipif(sys.platform != "linux", reason="names of Linux wheels")
def test_a_wheel_fits_the_interpreters_that_pip_would_take_it_for(tmp_path: Path) -> None:
    machine = os.uname().machine
    native = tmp_path / f"mcp_probe_profiler-1-cp312-cp312-manylinux_2_17_{machine}.whl"
    foreign = tmp_path / "mcp_probe_profiler-1-cp312-cp312-manylinux_2_17_s390x.whl"
    found = {version: release.fits(native, version) for version in ("3.11", "3.12", "3.13")}
    assert found == {"3.11": False, "3.12": True, "3.13": False}
    assert not release.fits(foreign, "3.12")
    assert all(release.fits(tmp_path / PURE, version) for version in ("3.10", "3.15"))


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    files_in(tmp_path, "b", "a")
    text = release.checksums([tmp_path / "b", tmp_path / "a"])
    assert text == "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in "ab")
    (tmp_path / "SHA256SUMS").write_text(text)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    if shutil.which("sha256sum"):
        subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, timeout=30)


def sdist_of(folder: Path, when: int, names: list[str]) -> Path:
    folder.mkdir()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(f"it-1/{name}")
            member.size, member.mtime, member.uid, member.uname, member.mode = len(name), when, when % 1000, "me", 0o664
            archive.addfile(member, io.BytesIO(name.encode()))
    (folder / "it-1.tar.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=when))
    return folder / "it-1.tar.gz"


def test_an_sdist_of_the_same_source_has_the_same_bytes_whenever_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    one, two = sdist_of(tmp_path / "1", 1_600_000_000, ["a", "b"]), sdist_of(tmp_path / "2", 1_650_000_007, ["b", "a"])
    assert one.read_bytes() != two.read_bytes()
    for made in (one, two):
        wheels.reproducible(made)
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        assert [(each.name, each.mtime) for each in archive] == [("it-1/a", 1_700_000_000), ("it-1/b", 1_700_000_000)]


@pytest.mark.parametrize("address", ["", "https://example.org/me/it"])
def test_the_projects_address_is_set_in_one_place(address: str, tmp_path: Path) -> None:
    for name in ("setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tmp_path)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (tmp_path / "pyproject.toml").write_text(
        re.sub(r'^repository = ".*"$', f'repository = "{address}"', text, flags=re.M)
    )
    package = tmp_path / "mcp_probe"
    package.mkdir()
    shutil.copy(ROOT / "mcp_probe" / "__init__.py", package)
    command = [sys.executable, "-c", METADATA, str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata.read_text("utf-8"), re.M))
    assert set(urls) == ({"Source", "Documentation", "Changelog", "Issues"} if address else set())
    assert all(url.startswith(address) for url in urls.values())


def test_the_first_minutes_are_shown_by_the_pages_they_name() -> None:
    for step in first_minutes.STEPS:
        first_minutes.check_page(step)
    with pytest.raises(first_minutes.Failed):
        first_minutes.check_page(first_minutes.Step("README.md", "mcp-probe no-such-command"))


# --- workflows --------------------------------------------------------------------------------------------------------


@workflows
def test_every_action_is_pinned_to_a_commit_whose_version_is_said(workflow: Path) -> None:
    uses = re.findall(r"uses: (.+)", workflow.read_text("utf-8"))
    assert uses
    assert [each for each in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


@workflows
def test_a_workflow_may_do_no_more_than_it_must(workflow: Path) -> None:
    text, parsed = workflow.read_text("utf-8"), loaded(workflow)
    assert "secrets." not in text
    assert parsed["permissions"] in ({}, {"contents": "read"})
    for name, job in parsed["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        granted = job.get("permissions", {})
        assert granted in ({}, {"contents": "read"}, {"id-token": "write"}), name
        if "id-token" in granted:
            assert job["environment"] == "release"
            assert not any("run" in step and "make" in step["run"] for step in job["steps"])


@workflows
def test_a_workflow_runs_targets_that_exist(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    parsed = loaded(workflow)
    named = set(re.findall(r"\bmake ([a-z-]+)", workflow.read_text("utf-8").split("jobs:")[1]))
    for job in parsed["jobs"].values():
        named |= set(job.get("strategy", {}).get("matrix", {}).get("target", []))
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.M)} == set()


def test_every_python_that_the_package_names_is_tested_but_those_that_are_not_out() -> None:
    tested = set(loaded(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"])
    named = set(
        re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    )
    assert named - tested <= {"3.15"}
    assert tested <= named


# --- container, cluster, hooks ----------------------------------------------------------------------------------------


def test_the_image_runs_as_a_user_that_is_not_root_and_copies_what_is_there() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert all(int(part) >= 1000 for part in users[-1].split(":"))
    assert not any(":latest" in line or re.match(r"ADD ", line) for line in lines)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists()
                assert f"!{name}" in ignored, name


def test_the_cluster_runs_nothing_as_root_and_takes_the_collectors_own_configuration() -> None:
    folder = ROOT / "examples" / "fleet"
    objects = list(yaml.safe_load_all((folder / "kubernetes.yaml").read_text("utf-8")))
    deployments = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for pod in deployments:
        assert pod["securityContext"]["runAsNonRoot"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert "memory" in container["resources"]["limits"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    set_there = {each["name"] for each in deployments[0]["containers"][0]["env"]}
    assert set_there <= set(re.findall(r"\$\{env:(\w+)", (folder / "collector.yaml").read_text("utf-8")))
    (generated,) = loaded(folder / "kustomization.yaml")["configMapGenerator"]
    assert generated == {"name": "collector", "files": ["collector.yaml"]}
    assert deployments[0]["volumes"][0]["configMap"]["name"] == "collector"
    version = re.search(r"collector-contrib:(\S+)", (folder / "kubernetes.yaml").read_text("utf-8"))
    locked = (ROOT / "requirements/go/collector/go.mod").read_text("utf-8")
    assert version is not None and f"tailsamplingprocessor v{version[1]}\n" in locked


def test_the_command_in_the_cluster_is_one_that_mcp_probe_understands() -> None:
    from mcp_probe import cli

    objects = yaml.safe_load_all((ROOT / "examples/fleet/kubernetes.yaml").read_text("utf-8"))
    args = next(
        container["args"]
        for each in objects
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        if container.get("command") == ["mcp-probe"]
    )
    before, after = cli._split_command(args)
    options = cli._parser().parse_args(before)
    assert (options.name, options.otlp, after) == ("run", True, ["python", "/app/server.py"])


def test_hooks_before_a_commit_use_the_locked_tools_and_fetch_nothing() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert (ROOT / hook["entry"].split()[0]).exists()


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_a_form_for_issues_has_what_a_form_needs(form: Path) -> None:
    parsed = loaded(form)
    assert {"name", "description", "body"} <= parsed.keys()
    names = [part["id"] for part in parsed["body"]]
    assert len(names) == len(set(names))
    assert {part["type"] for part in parsed["body"]} <= {"textarea", "input", "checkboxes", "dropdown", "markdown"}
