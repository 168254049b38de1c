"""The pytest plugin, as users' test runs meet it: what fails, what passes, what it says, and what it costs nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.hogs import hogs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEYS = ("retained", "step_cpu", "max_connections", "max_tasks", "max_awaits_under_lock", "findings")


def run(
    folder: Path, *arguments: str, python: Path | str = sys.executable, path: Sequence[Path] = (), **environment: str
) -> tuple[str, dict[str, str]]:
    """(what pytest printed, test -> "passed" or how it failed) of a test run in ``folder``."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "MCP_PROBE", "COV_"))}
    kept = {"MCP_PROBE_NATIVE": os.environ["MCP_PROBE_NATIVE"]} if "MCP_PROBE_NATIVE" in os.environ else {}
    settings |= {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), **kept, **environment}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={results}", *arguments]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=1_000, check=False)
    found = {}
    for case in ElementTree.parse(results).iter("testcase") if results.exists() else ():
        fault = next((each for each in case if each.tag in ("failure", "error")), None)
        found[str(case.get("name"))] = "passed" if fault is None else f"{fault.tag}: {fault.text}"
    return done.stdout + done.stderr, found


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with the suite and its server."""
    for name in ("shop.py", "suite_of_budgets.py"):
        shutil.copy(HERE / name, tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def lent_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest and our entry point for interpreters that have neither; all of it is pure Python."""
    folder, packages = tmp_path_factory.mktemp("pytest-only"), Path(sysconfig.get_paths()["purelib"])
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py"):
        (folder / name).symlink_to(packages / name)
    for name in ("mcp_probe_profiler", "pluggy", "pytest"):
        for found in packages.glob(f"{name}-*.dist-info"):
            (folder / found.name).symlink_to(found)
    return folder


def check_budgets(found: dict[str, str], test: str) -> None:
    assert {name for name in found if name.startswith(f"{test}[")} == {
        f"{test}[{key}{twin}]" for key in KEYS for twin in ("", "_well")
    }
    for key in KEYS:
        assert found[f"{test}[{key}_well]"] == "passed"
        assert found[f"{test}[{key}]"].startswith("failure: mcp_budget is not kept:\n  " + key), found[f"{test}[{key}]"]


@pytest.mark.parametrize("busy", [0, pytest.param(3, marks=pytest.mark.endurance)])
def test_each_budget_fails_the_faulty_tool_and_passes_its_mended_twin_with_xdist(suite: Path, busy: int) -> None:
    with hogs(busy):
        output, found = run(suite, "-n", "2", "suite_of_budgets.py", CI="true")
    check_budgets(found, "test_async")
    assert found["test_z_nothing_is_attached"] == "passed"
    # The rows of the test stand in its failure, also from a worker of xdist.
    assert "- mcp_probe -" in output
    assert "Where the time goes" in output and "save it" not in output
    assert "shop.py:" in found["test_async[step_cpu]"]


@pytest.mark.parametrize(
    ("name", "which"),
    [
        pytest.param("mcp1", "mcp1", marks=pytest.mark.endurance),
        pytest.param("fastmcp4", "fastmcp", marks=pytest.mark.endurance),
        pytest.param("fastmcp3", "fastmcp", marks=pytest.mark.endurance),
        pytest.param("fastmcp2", "fastmcp", marks=pytest.mark.endurance),
    ],
)
@pytest.mark.timeout(1_200)
def test_budgets_on_other_sdks_in_process_and_over_stdio(
    name: str, which: str, suite: Path, env_python: Callable[[str], Path], lent_pytest: Path
) -> None:
    settings = {"SHOP_SDK": which, "SHOP_RUNS": "stdio"}
    # A server of fastmcp takes many seconds to start on a busy machine: one pair over stdio is enough there.
    chosen = "test_async or test_sync" if which == "mcp1" else "test_async or (test_sync and lock)"
    output, found = run(
        suite, "suite_of_budgets.py", "-k", chosen, python=env_python(name), path=[lent_pytest], **settings
    )
    assert found, output
    check_budgets(found, "test_async")
    if which == "mcp1":
        check_budgets(found, "test_sync_over_stdio")
    else:
        assert found["test_sync_over_stdio[max_awaits_under_lock_well]"] == "passed"
        assert "while it held asyncio.Lock" in found["test_sync_over_stdio[max_awaits_under_lock]"]


def test_budgets_of_a_command_that_a_client_starts(suite: Path) -> None:
    _, found = run(suite, "suite_of_budgets.py", "-k", "test_sync_over_stdio and lock", SHOP_RUNS="stdio")
    assert len(found) == 2
    for name, outcome in found.items():
        assert (outcome == "passed") == ("_well" in name), (name, outcome)


@pytest.mark.endurance
@pytest.mark.timeout(1_200)
def test_every_budget_of_a_command_that_a_client_starts_on_a_busy_machine(suite: Path) -> None:
    with hogs(3):
        _, found = run(suite, "suite_of_budgets.py", "-k", "stdio", SHOP_RUNS="stdio")
    check_budgets(found, "test_sync_over_stdio")


def test_the_documents_example_fails_as_it_is_shown(tmp_path: Path) -> None:
    name = "test_your_server.py"
    example = ROOT / "examples" / "testing" / name
    shutil.copy(example, tmp_path)
    output, found = run(tmp_path, name)
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    shown = page.partition(f"<!-- output: examples/testing/{name} -->")[2].partition("```\n")[0]
    for test, keys in (
        ("test_search_blocks_nobody", ["findings: blocking-call: `search` blocked the event loop"]),
        (
            "test_note_keeps_little_and_locks_briefly",
            [
                "retained: Calls keep 12.",
                "max_awaits_under_lock: `note` awaited",
                "while it held asyncio.Lock test_your_server.lock (taken at test_your_server.py:",
            ],
        ),
    ):
        for key in keys:
            assert key in found[test] and key in shown
    assert sorted(name for name, outcome in found.items() if outcome == "passed") == [
        "test_asserts_of_your_own",
        "test_price_is_cheap",
    ]
    lines = {line.partition("at test_your_server.py:")[2][:2] for line in shown.splitlines() if "awaited sleep" in line}
    source = example.read_text("utf-8").splitlines()
    assert all("await asyncio.sleep" in source[int(line) - 1] for line in lines) and lines
    assert "2 failed, 2 passed" in output and "2 failed, 2 passed" in shown


WRONG = """
import pytest, shop

@pytest.mark.mcp_budget(retain="1kB")
def test_key(mcp_profile): pass

@pytest.mark.mcp_budget(retained="1 kg")
def test_unit(mcp_profile): pass

@pytest.mark.mcp_budget(retained=1000)
def test_no_unit(mcp_profile): pass

@pytest.mark.mcp_budget(max_tasks=2.5)
def test_number(mcp_profile): pass

@pytest.mark.mcp_budget(step_cpu="1ms")
def test_too_fine(mcp_profile): pass

@pytest.mark.mcp_budget("1kB")
def test_nameless(mcp_profile): pass

@pytest.mark.mcp_budget(operation="search")
def test_nothing(mcp_profile): pass

@pytest.mark.mcp_budget(findings="bloking-call")
def test_code(mcp_profile): pass

@pytest.mark.mcp_budget(max_tasks=2)
def test_fixture(): pass

@pytest.mark.mcp_budget(max_tasks=2)
def test_unused(mcp_profile): pass

@pytest.mark.mcp_budget(max_tasks=2)
def test_no_calls(mcp_profile):
    mcp_profile(shop.server)

@pytest.mark.mcp_budget(max_tasks=2)
def test_never_started(mcp_profile):
    mcp_profile(command=["never-started"])

def test_server(mcp_profile):
    mcp_profile(object())

def test_both(mcp_profile):
    mcp_profile(shop.server, command=["x"])

def test_text(mcp_profile):
    mcp_profile(command="python server.py")

def test_option(mcp_profile):
    mcp_profile(command=["x"], otlp=True)

def test_attached_already(mcp_profile):
    import mcp_probe
    probe = mcp_probe.attach(shop.server)
    try:
        mcp_profile(shop.server)
    finally:
        probe.detach()

@pytest.mark.mcp_budget(max_tasks=2)
class TestOfAClass:
    @pytest.mark.mcp_budget(max_taks=2)
    def test_closest(self, mcp_profile): pass
"""
SAID = {
    "test_key": "mcp_budget has no key 'retain'. Did you mean retained?",
    "test_unit": "retained is '1 kg'; expected a number with a unit (MB, B, kB, GB), such as retained=\"1kB\"",
    "test_no_unit": "retained is 1000; expected a number with a unit",
    "test_number": "max_tasks is 2.5; expected a whole number",
    "test_too_fine": "steps below 2 ms are not told apart",
    "test_nameless": "was given '1kB' without a name",
    "test_nothing": "mcp_budget limits nothing",
    "test_code": "did you mean blocking-call",
    "test_fixture": "Take mcp_profile as an argument",
    "test_unused": "Nothing was profiled: call mcp_profile(server) in the test.",
    "test_no_calls": "max_tasks is not known: No call of a tool, prompt or resource was measured",
    "test_never_started": "The server was never started",
    "test_server": "expected an MCPServer",
    "test_both": "one of the two",
    "test_text": "expected a list of strings",
    "test_option": "Unknown option 'otlp'",
    "test_attached_already": "is attached to this server already",
    "test_closest": "mcp_budget has no key 'max_taks'",
}


def test_what_is_wrong_or_unknown_fails_with_a_sentence(suite: Path) -> None:
    (suite / "test_wrong.py").write_text(WRONG)
    _, found = run(suite, "test_wrong.py")
    assert found.keys() == SAID.keys()
    for name, sentence in SAID.items():
        assert sentence in found[name], (name, found[name])


LIGHT = """
import sys


def test_nothing_is_loaded():
    loaded = [name for name in sys.modules if name.split(".")[0] == "mcp_probe"]
    assert sorted(loaded) == ["mcp_probe", "mcp_probe.testing", "mcp_probe.testing.plugin"]
"""


def test_a_run_without_the_fixture_loads_nothing_but_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(LIGHT)
    _, found = run(tmp_path, "test_light.py")
    assert found == {"test_nothing_is_loaded": "passed"}


def test_without_the_plugin_the_fixture_and_the_marker_are_unknown(suite: Path) -> None:
    (suite / "test_off.py").write_text("def test_fixture(mcp_profile): pass\ndef test_other(): pass\n")
    output, found = run(suite, "-p", "no:mcp_probe", "test_off.py")
    assert "fixture 'mcp_profile' not found" in output
    assert found["test_other"] == "passed"
