"""`mcp-probe init`: what it prints is what the clients read, and a file it writes differs by the probe alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe import cli
from mcp_probe.init import entry as entries
from mcp_probe.init import jsonc, tomls
from mcp_probe.init.clients import CLIENTS, NAMES, Entry, client_of, toml_table, written

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PROBE = ["/opt/probe/mcp-probe"]

WITH_COMMENTS = """\
{
  // mine
  "theme": "a // b", /* c */
  "mcpServers": {
    "shop": {"command": "python", "args": ["server.py", "--port=1"], "env": {"KEY": "x y"}},
    "time": {
      "command": "uvx", // fast
      "args": [
        "mcp-server-time",
      ],
    },
    "bare": {
      "command": "/opt/my folder/server"
    },
    "docs": {"command": "npx", "args": ["-y", "x"]},
    "box": {"command": "docker", "args": ["run", "-i", "x"]},
    "win": {"command": "C:\\\\Python\\\\python.exe", "args": []},
    "web": {"url": "https://example.com/mcp"},
    "odd": {"command": ["python"]},
  }
}
"""

CODEX = """\
model = "x" # keep
[mcp_servers.shop] # mine
command = "python" # here
args = [
  "server.py", # the server
  "[not a table]",
]
env = { KEY = "[a]" }
[mcp_servers."a b"]
command = 'uvx'
[mcp_servers.web]
url = "https://example.com"
[other]
command = "left"
"""


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder that are nobody's."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(entries, "probe_command", lambda: PROBE)
    return tmp_path


def run_words(words: list[str]) -> list[str]:
    """The server's own command, out of one that has the probe."""
    assert words[0] == PROBE[0]
    assert words[1] == "run"
    return words[words.index("--") + 1 :]


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["init", *arguments]) == cli.OK
    return capfd.readouterr().out


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["init", *arguments]) in {cli.BAD_USE, cli.UNREADABLE}
    return capfd.readouterr().err


# --- a command --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_client_gets_a_configuration_that_parses_and_starts_the_server(
    name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("my server.py").touch()
    text = printed(capfd, "--client", name, "--name", "shop", "--", sys.executable, "my server.py", "--x")
    client = client_of(name)
    value = tomllib.loads(text) if client.format == "toml" else json.loads(text)
    server = value[client.key]["shop"]
    assert run_words([server["command"], *server["args"]]) == [sys.executable, str(Path.cwd() / "my server.py"), "--x"]
    assert {"--output", str(tmp_path / "home/.mcp-probe/shop.txt")} <= set(server["args"])
    assert (tmp_path / "home/.mcp-probe").is_dir()
    assert ("type" in server) == (name == "vscode")


def test_without_a_client_all_are_shown_once_each(capfd: pytest.CaptureFixture[str]) -> None:
    text = printed(capfd, "--", sys.executable, "-V")
    assert [text.count(f"# {client.title} ") for client in CLIENTS] == [1] * len(CLIENTS)
    assert text.count('"mcpServers"') == text.count('"servers"') == text.count("[mcp_servers.") == 1


def test_a_module_of_this_folder_is_found_from_another(capfd: pytest.CaptureFixture[str]) -> None:
    Path("shop").mkdir()
    (server,) = json.loads(printed(capfd, "--client", "cursor", "--", sys.executable, "-m", "shop"))[
        "mcpServers"
    ].values()
    assert server["env"] == {"PYTHONPATH": os.getcwd()}
    assert server["args"][-2:] == ["-m", "shop"]


def test_an_argument_that_only_looks_like_a_folder_here_stays_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    for argument, shown in (
        ("data", "data"),
        ("./data", str(Path.cwd() / "data")),
        (".", os.getcwd()),
        ("--x=.", "--x=."),
    ):
        (server,) = json.loads(printed(capfd, "--client", "cursor", "--", sys.executable, "-c", "1", argument))[
            "mcpServers"
        ].values()
        assert server["args"][-1] == shown


def test_a_virtual_environment_stays_the_one_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its python is a link to another, which would not find what is installed."""
    (tmp_path / "venv").mkdir()
    python = tmp_path / "venv" / "python"
    python.symlink_to(sys.executable)
    (server,) = json.loads(printed(capfd, "--client", "cursor", "--", str(python), "x"))["mcpServers"].values()
    assert server["args"][-2] == str(python)


def test_a_shim_gives_way_to_the_interpreter_it_chooses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "python"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)
    (server,) = json.loads(printed(capfd, "--client", "cursor", "--", str(shim), "x"))["mcpServers"].values()
    assert server["args"][-2] == sys.executable


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["npx", "-y", "x"], "JavaScript"),
        (["docker", "run", "x"], "container"),
        (["https://example.com/mcp"], "is a URL"),
        (["no-such-program-here"], "no program of that name"),
        ([r"C:\Python\python.exe", "x"], "Windows"),
    ],
)
def test_what_cannot_be_profiled_is_refused_with_the_reason(
    command: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(capfd, "--", *command)


def test_options_that_do_not_fit_together_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert "Expected the server's command" in refused(capfd)
    assert "Leave the command out" in refused(capfd, "--write", "--", "python")
    assert "has no configuration here" in refused(capfd, "--client", "cursor")
    assert "opens its configuration itself" in refused(capfd, "--client", "cline")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "server.py"], "server"),
        (["/x/python3.12", "-m", "my_server"], "my_server"),
        (["uvx", "mcp-server-time"], "mcp-server-time"),
        (["uv", "run", "shop.py"], "shop"),
        (["/opt/bin/my-server", "--port", "1"], "my-server"),
    ],
)
def test_a_server_is_named_by_its_command(command: list[str], name: str) -> None:
    assert entries.name_of(command) == name


def test_the_printed_command_runs_and_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entries, "probe_command", lambda: [sys.executable, "-m", "mcp_probe"])
    Path("my server.py").write_text("print('served')\n")
    (server,) = json.loads(printed(capfd, "--client", "zed", "--name", "a/b c", "--", sys.executable, "my server.py"))[
        "context_servers"
    ].values()
    words = [server["command"], *server["args"]]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.stdout == "served\n", done.stderr
    assert (tmp_path / "home/.mcp-probe/a-b-c.jsonl").exists()


# --- a file -----------------------------------------------------------------------------------------------------------


def test_a_file_keeps_everything_but_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    file = Path("mcp.json")
    file.write_text(WITH_COMMENTS)
    file.chmod(0o640)
    assert cli.main(["init", "--file", "mcp.json", "--write"]) == cli.OK
    before, after = jsonc.parse(WITH_COMMENTS).value, jsonc.parse(file.read_text()).value
    for name, server in before["mcpServers"].items():
        now = after["mcpServers"][name]
        if name in {"shop", "time", "bare"}:
            assert run_words([now.pop("command"), *now.pop("args")]) == [server.pop("command"), *server.pop("args", [])]
        assert now == server
    assert {each for each in ("// mine", "/* c */", "// fast") if each in file.read_text()} == {
        "// mine",
        "/* c */",
        "// fast",
    }
    assert Path("mcp.json.before-mcp-probe").read_text() == WITH_COMMENTS
    assert file.stat().st_mode & 0o777 == 0o640
    said = capfd.readouterr().err
    for why in ("JavaScript", "container", "Windows", "by a URL", "no `command` that is a string"):
        assert why in said


def test_a_second_time_nothing_changes_and_the_first_copy_stays(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mcp.json").write_text(WITH_COMMENTS)
    cli.main(["init", "--file", "mcp.json", "--write", "--name", "shop"])
    once = Path("mcp.json").read_text()
    cli.main(["init", "--file", "mcp.json", "--write"])
    twice = Path("mcp.json").read_text()
    cli.main(["init", "--file", "mcp.json", "--write"])
    assert Path("mcp.json").read_text() == twice != once
    assert Path("mcp.json.before-mcp-probe").read_text() == WITH_COMMENTS
    assert Path("mcp.json.before-mcp-probe.2").read_text() == once
    assert "already" in capfd.readouterr().err


def test_printing_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mcp.json").write_text(WITH_COMMENTS)
    text = printed(capfd, "--file", "mcp.json", "--name", "shop")
    shown = json.loads("{" + text.strip() + "}")["shop"]
    assert run_words([shown["command"], *shown["args"]]) == ["python", "server.py", "--port=1"]
    assert shown["env"] == {"KEY": "x y"}
    assert [each.name for each in Path().iterdir()] == ["mcp.json"]
    assert Path("mcp.json").read_text() == WITH_COMMENTS


def test_codexs_file_keeps_its_comments_and_other_tables(capfd: pytest.CaptureFixture[str]) -> None:
    Path("config.toml").write_text(CODEX)
    assert cli.main(["init", "--file", "config.toml", "--write"]) == cli.OK
    before, after = tomllib.loads(CODEX), tomllib.loads(Path("config.toml").read_text())
    for name in ("shop", "a b"):
        now, then = after["mcp_servers"][name], before["mcp_servers"][name]
        assert run_words([now.pop("command"), *now.pop("args")]) == [then.pop("command"), *then.pop("args", [])]
    assert after == before
    for comment in ("# keep", "# mine", "# here"):
        assert comment in Path("config.toml").read_text()


@pytest.mark.parametrize("text", ['[mcp_servers]\nx = { command = "a" }\n', 'mcp_servers.x.command = "a"\n'])
def test_toml_without_a_table_for_the_server_is_refused(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("config.toml").write_text(text)
    assert "[mcp_servers.x]" in refused(capfd, "--file", "config.toml", "--write")
    assert Path("config.toml").read_text() == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"mcpServers": {"a": {"command": "b"}', "is not JSON"),
        (b'{"mcpServers": {}}', "has no MCP servers"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[1]", "has no MCP servers"),
        (b"\xff\xfe", "not UTF-8"),
        (b"{" * 5000, "is not JSON"),
        (b'{"a": "\\q"}', "is not JSON"),
        (b"", "is not JSON"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_and_stays(
    text: bytes, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("mcp.json").write_bytes(text)
    assert why in refused(capfd, "--file", "mcp.json", "--write")
    assert Path("mcp.json").read_bytes() == text


def test_a_missing_file_and_a_missing_server_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert "Cannot read" in refused(capfd, "--file", "gone.json")
    assert "Cannot read" in refused(capfd, "--file", ".")
    Path("mcp.json").write_text(WITH_COMMENTS)
    assert "It has shop, time" in refused(capfd, "--file", "mcp.json", "--name", "nobody")
    assert "JavaScript" in refused(capfd, "--file", "mcp.json", "--name", "docs", "--write")


def test_the_end_of_lines_and_a_byte_order_mark_stay() -> None:
    text = "\ufeff" + WITH_COMMENTS.replace("\n", "\r\n")
    Path("mcp.json").write_bytes(text.encode())
    assert cli.main(["init", "--file", "mcp.json", "--write"]) == cli.OK
    after = Path("mcp.json").read_bytes().decode()
    assert after.startswith("\ufeff{\r\n")
    assert after.count("\n") == after.count("\r\n") > WITH_COMMENTS.count("\n")


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(WITH_COMMENTS)
    Path("mcp.json").symlink_to(real)
    assert cli.main(["init", "--file", "mcp.json", "--write"]) == cli.OK
    assert Path("mcp.json").is_symlink()
    assert PROBE[0] in real.read_text()


def test_servers_of_vs_codes_settings_zed_and_claude_codes_projects_are_found(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = {"command": "python", "args": ["x.py"]}
    for value in (
        {"mcp": {"servers": {"one": server}}},
        {"context_servers": {"one": server}},
        {"projects": {"/a/b": {"mcpServers": {"one": server}}}},
    ):
        Path("settings.json").write_text(json.dumps(value))
        assert run_words(shown_words(printed(capfd, "--file", "settings.json"))) == ["python", "x.py"]


def shown_words(text: str) -> list[str]:
    (server,) = json.loads("{" + text.strip() + "}").values()
    return [server["command"], *server["args"]]


def test_a_probe_that_stands_there_already_is_known_in_all_its_forms() -> None:
    known = (
        ["mcp-probe", "run", "--", "x"],
        ["/a/mcp-probe", "run", "x"],
        ["uvx", "--from", "mcp-probe-profiler", "mcp-probe", "run", "--", "x"],
        ["/a/python", "-m", "mcp_probe", "run", "--", "x"],
    )
    assert all(entries.is_probed(words[0], words[1:]) for words in known)
    assert not entries.is_probed("python", ["-m", "mcp_probe_tools"])
    assert not entries.is_probed("uvx", ["mcp-server-time", "run"])


# --- texts ------------------------------------------------------------------------------------------------------------

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.sampled_from([None, 2]))
def test_json_is_read_as_json_reads_it(value: Any, indent: int | None) -> None:
    assert jsonc.parse(json.dumps(value, indent=indent)).value == value


@given(st.text(max_size=60))
def test_no_text_at_all_breaks_the_reader(text: str) -> None:
    try:
        value = jsonc.parse(text).value
    except jsonc.NotJson:
        return
    assert json.loads(json.dumps(value)) == value


words = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)


@given(name=words, command=words, args=st.lists(words, max_size=4), env=st.dictionaries(words, words, max_size=3))
def test_what_is_written_is_read_back_the_same(name: str, command: str, args: list[str], env: dict[str, str]) -> None:
    entry = Entry(name, command, tuple(args), env)
    for client in CLIENTS:
        text = written(entry, client)
        server = (tomllib.loads(text) if client.format == "toml" else json.loads(text))[client.key][name]
        assert (server["command"], server["args"], server.get("env", {})) == (command, args, env)


@given(
    name=words.filter(str.isalnum), before=st.lists(words, max_size=3), after=st.lists(words, max_size=3), rest=words
)
def test_a_toml_table_is_changed_whatever_its_strings_hold(
    name: str, before: list[str], after: list[str], rest: str
) -> None:
    path = ("mcp_servers", name)
    old = toml_table(Entry(name, "old", tuple(before), {"K": rest}), "mcp_servers") + "[last]\nx = 1\n"
    value = tomllib.loads(tomls.replaced(old, path, Entry(name, "new", tuple(after))))
    assert value == {"mcp_servers": {name: {"command": "new", "args": after, "env": {"K": rest}}}, "last": {"x": 1}}
