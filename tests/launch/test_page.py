"""`mcp-probe run --html`: one page of every process that served, when the command has ended."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.launch.running import SEND_ALL, player, run

TWO = """
with open(0, "rb") as stdin:
    stdin.read()
sink.write(lines)
sink.close()
other = ChannelSink(os.path.join(os.environ["MCP_PROBE_RUN"], "channel"))
other.write(lines)
other.close()
"""
DATA = re.compile(r'<script type="application/json" class="data">(.*?)</script>')


def ids_of(page: Path) -> list[list[int]]:
    """Of each process on ``page`` the requests that are drawn."""
    return [[one["id"] for one in json.loads(data)["requests"]] for data in DATA.findall(page.read_text("utf-8"))]


def test_the_page_is_there_when_the_run_has_ended(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(player(tmp_path, SEND_ALL), "--html", str(page))
    assert done.returncode == 0
    if b"still being written" not in done.stderr:  # a machine may be too busy for that
        assert [sorted(ids) for ids in ids_of(page)] == [[1, 2, 3]]


def test_every_process_is_on_one_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run(player(tmp_path, TWO), "--html", str(page))
    assert done.returncode == 0
    if b"still being written" not in done.stderr:
        assert [sorted(ids) for ids in ids_of(page)] == [[1, 2, 3], [1, 2, 3]]
        assert "2 recordings" in page.read_text("utf-8")
    assert not (tmp_path / "page.2.html").exists()
