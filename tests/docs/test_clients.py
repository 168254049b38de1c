"""docs/clients.md shows what `mcp-probe init` prints, and names every client that it knows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcp_probe import cli
from mcp_probe.init import entry
from mcp_probe.init.clients import CLIENTS
from tests.docs.test_docs import ROOT, blocks_of

TEXT = (ROOT / "docs" / "clients.md").read_text("utf-8")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the page's examples."""
    home = tmp_path / "home" / "me"
    python = home / "shop" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    (home / "shop" / "server.py").touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(home / "shop")
    monkeypatch.setattr(entry, "probe_command", lambda: [str(python.with_name("mcp-probe"))])
    return tmp_path


def printed(arguments: list[str], shop: Path, capfd: pytest.CaptureFixture[str]) -> str:
    assert cli.main(arguments) == cli.OK
    out, err = capfd.readouterr()
    return f"{err}\0{out}".replace(str(shop), "")


def test_the_configuration_that_is_shown_is_the_one_that_is_printed(
    shop: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = printed(["init", "--client", "cursor", "--name", "shop", "--", "python", "server.py"], shop, capfd)
    shown = next(block.code for block in blocks_of(TEXT) if block.language == "json")
    assert json.loads(told.split("\0")[1]) == json.loads(shown)


def test_the_file_that_is_shown_rewritten_is_what_is_printed(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    servers = {
        "shop": {"command": "uvx", "args": ["my-shop", "--port=1"], "env": {"TOKEN": "x y"}},
        "docs": {"command": "npx", "args": ["-y", "docs"]},
        "web": {"url": "https://example.com/mcp"},
    }
    Path(".cursor").mkdir()
    Path(".cursor/mcp.json").write_text(json.dumps({"mcpServers": servers}))
    remarks, entries = printed(["init", "--file", ".cursor/mcp.json"], shop, capfd).split("\0")
    shown = next(block.code for block in blocks_of(TEXT) if block.language == "text")
    remarks = remarks.replace("# .cursor", "# /home/me/shop/.cursor")
    lines = [line for line in shown.splitlines() if line.startswith("#")]
    unwrapped = [re.sub(r"\s+", " ", " ".join(each).replace(" # ", " ")) for each in (lines, remarks.splitlines())]
    assert unwrapped[0] == unwrapped[1]
    value = "\n".join(line for line in shown.splitlines() if not line.startswith("#"))
    assert json.loads("{" + value + "}") == json.loads("{" + entries + "}")


def test_every_client_is_named_with_its_files() -> None:
    for client in CLIENTS:
        (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {client.title} ")]
        assert f"`{client.name}`" in row
        for place in (client.project_file, Path(client.user_file).name, client.hint):
            assert place in row
