"""A judgement as annotations that GitHub Actions shows at the line, in the diff.

Source: actions/toolkit, packages/core/src/command.ts (the form of a workflow command and its escapes).
"""

from __future__ import annotations

import os

from mcp_probe.aggregate.gate import Judgement, place_of
from mcp_probe.model import Finding


def annotated(judgement: Judgement, workspace: str) -> str:
    """One line for each: errors for what fails, notices for what the baseline has already.

    Args:
        workspace: the checkout. Files in it are named relative to it; of others only the text tells the place.
    """
    lines = [_command("error", {"title": "mcp-probe"}, problem) for problem in judgement.problems]
    lines += [_of_finding("error", finding, workspace, finding.code) for finding in judgement.failing]
    lines += [
        _of_finding("notice", finding, workspace, f"{finding.code} (known from the baseline)")
        for finding in judgement.known
    ]
    return "".join(lines)


def _of_finding(level: str, finding: Finding, workspace: str, title: str) -> str:
    file, line = place_of(finding)
    properties = {"file": "" if file is None else _inside(file, workspace), "title": f"mcp-probe: {title}"}
    if properties["file"] and line is not None:
        properties["line"] = str(line)
    return _command(level, properties, "\n".join(filter(None, (finding.sentence, finding.advice))))


def _inside(file: str, workspace: str) -> str:
    """``file`` relative to ``workspace``; empty where it is not a file below it."""
    path, root = os.path.realpath(os.path.join(workspace, file)), os.path.realpath(workspace)
    if not path.startswith(os.path.join(root, "")) or not os.path.isfile(path):
        return ""
    return os.path.relpath(path, root).replace(os.sep, "/")


def _command(level: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{level} {given}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
