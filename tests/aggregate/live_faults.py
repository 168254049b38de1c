"""What a live server's summary says of its faults, and where in the server's file they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def findings(summary: dict[str, Any], code: str) -> dict[str, dict[str, Any]]:
    """Those of one code, by subject."""
    return {finding["subject"]: finding for finding in summary["findings"] if finding["code"] == code}


def line_in(server: Path, mark: str) -> str:
    """``file:line`` of the first line of ``server`` that ends with a comment ``mark``."""
    lines = server.read_text("utf-8").splitlines()
    number = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))
    return f"{server.name}:{number}"
