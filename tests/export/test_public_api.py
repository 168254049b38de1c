"""Towards OpenTelemetry only its public API is used, whatever that costs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mcp_probe"
FILES = [
    *sorted((PACKAGE / "export").glob("*.py")),
    PACKAGE / "adapters" / "span_middleware.py",
    PACKAGE / "instrumentor.py",
]

# What a reader and an instrumentor must have, the only way to the answers that the gRPC exporter gets, and the one name
# of the MCP SDK's that is read: (file, name).
DECLARED = {
    ("metric_push.py", "_receive_metrics"),
    ("rejections.py", "_client"),
    ("instrumentor.py", "_instrument"),
    ("instrumentor.py", "_uninstrument"),
    ("span_middleware.py", "_connection"),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_names_of_others(source: str) -> Iterator[str]:
    """Private names that are imported, read off anything but ``self``, asked for by ``getattr``, or overridden."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_self(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opentelemetry"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute) and not is_self(node.value):
            names = [] if node.attr in own else [node.attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            key = node.args[1]
            asks_self = is_self(node.args[0])
            names = [str(key.value)] if isinstance(key, ast.Constant) and not asks_self else []
        else:
            names = []
        yield from filter(is_private, names)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_no_private_name_of_opentelemetry_is_used() -> None:
    found = {(path.name, name) for path in FILES for name in private_names_of_others(path.read_text("utf-8"))}
    assert found <= DECLARED


@pytest.mark.parametrize(
    "source",
    [
        "from opentelemetry.context import _KEY",
        "from opentelemetry.sdk.metrics._internal import x",
        "import opentelemetry.sdk._logs",
        "span._attributes",
        "getattr(span, '_lock', None)",
    ],
)
def test_a_private_name_would_be_found(source: str) -> None:
    assert len(list(private_names_of_others(source))) == 1
