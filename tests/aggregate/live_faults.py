"""What a live server's summary says of its faults, and where in the server's file they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def findings(summary: dict[str, Any], code: str) -> dict[str, dict[str, Any]]:
    """Those of one code, by subject."""
    return {finding["subject"]: finding for finding in summary["findings"] if finding["code"] == code}


def is_right(summary: dict[str, Any], code: str, name: str) -> bool:
    """Whether the fault of that name is found, and neither its mended twin nor its near miss."""
    found = findings(summary, code).keys()
    return f"{name}_fault" in found and not {f"{name}_mended", f"{name}_near"} & found


def line_in(server: Path, mark: str) -> str:
    """``file:line`` of the first line of ``server`` that ends with a comment ``mark``."""
    lines = server.read_text("utf-8").splitlines()
    number = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))
    return f"{server.name}:{number}"
