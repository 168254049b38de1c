"""Arguments, results, prompts and resources on spans: only what was asked for by name, redacted, cut to a length."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp_probe.capture.tracing import Message, param_of
from mcp_probe.export import conventions as names
from mcp_probe.export.enrich import Attributes

logger = logging.getLogger("mcp_probe")

MAX_CONTENT = 4096
"""Characters of one content attribute."""

MAX_VARIABLES = 16
MAX_VARIABLE_NAME = 64

Redact = Callable[[str, Any], Any]
"""(kind, value) -> what may be shown; ``None`` shows nothing."""


class Content:
    """What of a message's content goes onto its span. Nothing, unless kinds were named."""

    def __init__(self, kinds: Iterable[str] = (), redact: Redact | None = None) -> None:
        self._kinds = frozenset(kinds)
        self._redact = redact
        self._told = False

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def of_request(self, message: Message) -> Attributes:
        """Arguments of a tool, variables of a prompt."""
        arguments = param_of(message.params, "arguments")
        if not isinstance(arguments, Mapping):
            return {}
        if message.method == "tools/call" and "arguments" in self._kinds:
            return self._shown("arguments", arguments, names.GEN_AI_TOOL_CALL_ARGUMENTS)
        if message.method == "prompts/get" and "prompt" in self._kinds:
            return self._variables(arguments)
        return {}

    def of_result(self, message: Message, result: Any) -> Attributes:
        """Result of a tool, contents of a resource."""
        if message.method == "tools/call" and "result" in self._kinds:
            return self._shown("result", _plain(result), names.GEN_AI_TOOL_CALL_RESULT)
        if message.method == "resources/read" and "resource" in self._kinds:
            return self._shown("resource", _plain(result), names.RESOURCE_CONTENTS)
        return {}

    def _variables(self, arguments: Mapping[Any, Any]) -> Attributes:
        shown = self._allowed("prompt", arguments)
        if not isinstance(shown, Mapping):
            return {}
        pairs = list(shown.items())[:MAX_VARIABLES]
        return {
            f"{names.GEN_AI_PROMPT_VARIABLE}.{str(key)[:MAX_VARIABLE_NAME]}": str(value)[:MAX_CONTENT]
            for key, value in pairs
        }

    def _shown(self, kind: str, value: Any, attribute: str) -> Attributes:
        shown = self._allowed(kind, value)
        return {} if shown is None else {attribute: _text(shown)[:MAX_CONTENT]}

    def _allowed(self, kind: str, value: Any) -> Any:
        """What ``redact`` lets through; nothing where it fails."""
        if self._redact is None:
            return value
        try:
            return self._redact(kind, value)
        except Exception as exc:  # noqa: BLE001 - the server's request goes on; its content stays home
            if not self._told:
                self._told = True
                logger.warning("mcp_probe: redact raised %s; content is left out", type(exc).__name__)
            return None


def _plain(result: Any) -> Any:
    root = getattr(result, "root", result)
    dump = getattr(root, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else root


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
