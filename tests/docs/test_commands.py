"""Every `mcp-probe` command line that README and docs show is one that the command understands."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mcp_probe import cli
from mcp_probe.options import NOT_FROM_ENVIRONMENT, Options
from tests.docs.test_docs import FENCE, PAGES, ROOT, blocks_of

SHELLS = {"sh", "bash", "console", "shell"}
SPAN = re.compile(r"`([^`\n]+)`")
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "(", ")"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """What ``cli.main`` made of each command line; nothing is run."""
    seen: list[argparse.Namespace] = []

    def keep(options: argparse.Namespace) -> int:
        seen.append(options)
        return cli.OK

    for name in (
        "_run",
        "_report",
        "_demo",
        "_bench",
        "_compare",
        "_query",
        "_top",
        "_what_if",
        "_doctor",
        "_load",
        "_init",
        "_completion",
        "_attach",
    ):
        monkeypatch.setattr(cli, name, keep)
    return seen


def words_of(line: str) -> list[str]:
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def commands_in(words: list[str]) -> Iterator[list[str]]:
    """Arguments of each `mcp-probe` among ``words``, whatever starts it (uvx, a client's own command, a path)."""
    for at, word in enumerate(words):
        starts = Path(word).name == "mcp-probe" or words[at - 1 : at + 1] == ["-m", "mcp_probe"]
        if not starts or (at and words[at - 1] in {"install", "add"}):
            continue
        rest = words[at + 1 :]
        end = next((index for index, each in enumerate(rest) if each in ENDS), len(rest))
        yield rest[:end]


def shell_lines(text: str) -> Iterator[str]:
    for block in blocks_of(text):
        if block.language in SHELLS:
            yield from block.code.replace("\\\n", " ").splitlines()


def client_commands(text: str) -> Iterator[list[str]]:
    """The command lines in configuration of MCP clients and in Dockerfiles."""
    for block in blocks_of(text):
        if block.language == "json":
            values: dict[str, Any] = json.loads(block.code)
            for server in {**values.get("mcpServers", {}), **values.get("servers", {})}.values():
                yield [server["command"], *server["args"]]
        elif block.language == "dockerfile":
            for words in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", block.code, re.M):
                yield json.loads(words)


def mentions(text: str) -> Iterator[list[str]]:
    """Command lines within sentences; one without arguments (`mcp-probe report`) is only a name, so asks for help."""
    for span in SPAN.findall(FENCE.sub("", text)):
        if "mcp-probe " in span:
            words = words_of(span)
            yield [*words, "--help"] if len(words) == 2 else words


def commands_of(text: str) -> list[list[str]]:
    lines = [*map(words_of, shell_lines(text)), *mentions(text), *client_commands(text)]
    return [each for words in lines for each in commands_in(words)]


@pages
def test_every_command_line_of_a_page_parses(page: Path, parsed: list[argparse.Namespace]) -> None:
    for arguments in commands_of(page.read_text("utf-8")):
        try:
            cli.main(arguments)
        except SystemExit as ended:
            assert ended.code == 0, f"mcp-probe {shlex.join(arguments)}"


def test_getting_started_or_the_page_of_the_command_names_every_option() -> None:
    pages = (
        "getting-started.md",
        "attach.md",
        "bench.md",
        "load.md",
        "compare.md",
        "query.md",
        "clients.md",
        "live.md",
        "predicting.md",
    )
    text = "".join((ROOT / "docs" / page).read_text("utf-8") for page in pages if (ROOT / "docs" / page).exists())
    choices = next(action.choices for action in cli._parser()._actions if isinstance(action.choices, dict))
    given = {option for parser in choices.values() for action in parser._actions for option in action.option_strings}
    assert {option for option in given - {"-h", "--help"} if f"`{option}" not in text} == set()


def test_getting_started_names_every_option_of_attach_and_its_variable() -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    names = [field.name for field in fields(Options)]
    assert [name for name in names if f"`{name}`" not in text] == []
    variables = [f"`MCP_PROBE_{name.upper()}`" for name in names if name not in NOT_FROM_ENVIRONMENT]
    assert [variable for variable in variables if variable not in text] == []


def test_commands_are_found_wherever_they_stand() -> None:
    text = """\
Use `mcp-probe report FILE`, `mcp-probe doctor` or `mcp-probe`.

```sh
$ pip install mcp-probe-profiler
(cat a; sleep 1) | env -i X=1 /opt/mcp-probe run --json x -- python s.py > out  # mcp-probe not this
uvx --from mcp-probe-profiler \\
  mcp-probe demo && python -m mcp_probe doctor
```

```json
{"mcpServers": {"a": {"command": "uvx", "args": ["--from", "mcp-probe-profiler", "mcp-probe", "run", "--", "b"]}}}
```

```dockerfile
ENTRYPOINT ["mcp-probe", "run", "--", "c"]
```
"""
    assert sorted(commands_of(text)) == sorted(
        [
            ["report", "FILE"],
            ["doctor", "--help"],
            ["run", "--json", "x", "--", "python", "s.py"],
            ["demo"],
            ["doctor"],
            ["run", "--", "b"],
            ["run", "--", "c"],
        ]
    )


@pytest.mark.parametrize(
    "line", ["run --out x -- y", "reports x", "report", "demo --fast", "run --slow-step-ms x -- y"]
)
def test_a_command_line_that_does_not_parse_is_found(line: str, parsed: list[argparse.Namespace]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(commands_of(f"```sh\nmcp-probe {line}\n```\n")[0])
    assert ended.value.code == cli.BAD_USE
    assert parsed == []
