"""The MCP clients whose configuration is known, and how each writes a server down.

Source: each client's own documentation: modelcontextprotocol.io (Claude Desktop), code.claude.com/docs/en/mcp,
code.visualstudio.com (MCP configuration reference), cursor.com/docs, docs.windsurf.com/windsurf/cascade/mcp,
zed.dev/docs/ai/mcp, docs.cline.bot, github.com/google-gemini/gemini-cli docs/tools/mcp-server.md, and
github.com/openai/codex docs/config.md.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """How a client starts one server."""

    name: str
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Client:
    """One client. ``key`` is the object that holds its servers; ``format`` is ``json`` or ``toml``."""

    name: str
    title: str
    key: str
    user_file: str
    """For all projects, below the home folder; ``""`` where the client opens the file itself."""
    project_file: str = ""
    format: str = "json"
    has_type: bool = False
    hint: str = ""

    def files(self) -> list[Path]:
        """Where its configuration can be: the project's first, then the user's."""
        found = [Path.cwd() / self.project_file] if self.project_file else []
        return found + ([_user_path(self.user_file)] if self.user_file else [])


_CLAUDE_FOLDER = {"darwin": "Library/Application Support/Claude", "win32": "AppData/Roaming/Claude"}.get(
    sys.platform, ".config/Claude"
)

CLIENTS = (
    Client("claude-desktop", "Claude Desktop", "mcpServers", f"{_CLAUDE_FOLDER}/claude_desktop_config.json"),
    Client("claude-code", "Claude Code", "mcpServers", ".claude.json", ".mcp.json"),
    Client("cursor", "Cursor", "mcpServers", ".cursor/mcp.json", ".cursor/mcp.json"),
    Client("windsurf", "Windsurf", "mcpServers", ".codeium/windsurf/mcp_config.json"),
    Client("gemini", "Gemini CLI", "mcpServers", ".gemini/settings.json", ".gemini/settings.json"),
    Client("cline", "Cline", "mcpServers", "", hint="MCP Servers > Configure > Configure MCP Servers"),
    Client("vscode", "VS Code", "servers", "", ".vscode/mcp.json", has_type=True, hint="MCP: Open User Configuration"),
    Client("zed", "Zed", "context_servers", ".config/zed/settings.json"),
    Client("codex", "Codex CLI", "mcp_servers", ".codex/config.toml", ".codex/config.toml", "toml"),
)
_COLUMNS = 88

NAMES = tuple(client.name for client in CLIENTS)


def client_of(name: str) -> Client:
    return next(client for client in CLIENTS if client.name == name)


def _user_path(below_home: str) -> Path:
    if below_home.startswith(".codex/") and os.environ.get("CODEX_HOME"):
        return Path(os.environ["CODEX_HOME"]) / "config.toml"
    return Path.home() / below_home


def written(entry: Entry, client: Client) -> str:
    """``entry`` as a whole configuration of ``client``, with a newline at its end."""
    if client.format == "toml":
        return toml_table(entry, client.key)
    return json_text({client.key: {entry.name: json_entry(entry, client)}}) + "\n"


def json_entry(entry: Entry, client: Client) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": "stdio"} if client.has_type else {}
    fields |= {"command": entry.command, "args": list(entry.args)}
    return {**fields, "env": dict(entry.env)} if entry.env else fields


def json_text(value: Any, indent: str = "") -> str:
    """JSON with two spaces a level; lists of strings fill lines. ``indent`` is its own."""
    if isinstance(value, dict) and value:
        inner = indent + "  "
        rows = [f"{inner}{json_string(name)}: {json_text(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return _filled([json_string(each) for each in value], indent)
    return json.dumps(value, ensure_ascii=False)


def _filled(words: list[str], indent: str) -> str:
    one = f"[{', '.join(words)}]"
    if len(indent) + len(one) <= _COLUMNS:
        return one
    lines = [indent + "  "]
    for at, word in enumerate(words):
        word += "," if at < len(words) - 1 else ""
        if len(lines[-1]) + len(word) > _COLUMNS and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append(indent + "  ")
        lines[-1] += f"{word} "
    return "[\n" + "\n".join(lines).rstrip() + f"\n{indent}]"


def json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def toml_table(entry: Entry, key: str) -> str:
    lines = [f"[{key}.{toml_key(entry.name)}]", f"command = {toml_string(entry.command)}"]
    lines.append(f"args = {_filled([toml_string(each) for each in entry.args], '')}")
    if entry.env:
        pairs = ", ".join(f"{toml_key(name)} = {toml_string(value)}" for name, value in entry.env.items())
        lines.append(f"env = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_string(name)


def toml_string(text: str) -> str:
    """A basic string. JSON's escapes are TOML's, but for U+007F, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
