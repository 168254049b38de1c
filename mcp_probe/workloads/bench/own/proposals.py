"""Arguments for a tool, made from its JSON schema: what the schema gives itself first, the plainest value else.

Only required arguments are given. A value is refused rather than guessed where nothing in the schema tells what would
be understood, or whom the tool would ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil, floor
from typing import Any

_DEEPEST = 8
_GIVEN = ("const", "default", "examples", "enum")
_FORMATS: dict[str, str] = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_OF_OTHERS = frozenset({"uri", "uri-reference", "iri", "url"})
_EXAMPLE = re.compile(
    r"(?:e\.g\.?,?|for example,?|such as|like|default:?)\s*[:(]?\s*(['\"`‘“])([^'\"`’”]{1,80})['\"`’”]", re.I
)
_SHAPES = {"YYYY-MM-DD": "2026-01-15", "HH:MM:SS": "12:00:00", "HH:MM": "12:00"}
"""Ways in which descriptions say how dates and times are written."""

_PLAIN_TEXT = "example"
_PLAIN_NUMBER = 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """``arguments`` is ``None`` where none can be proposed; ``refused`` then says why."""

    arguments: Mapping[str, Any] | None
    sources: tuple[tuple[str, str], ...] = ()  # (argument, where its value is from)
    refused: str = ""


class _Unknown(Exception):
    """No value can be made up; the text says why."""


def proposed(schema: Any) -> Proposal:
    """Arguments that ``schema``, a tool's ``inputSchema``, allows."""
    if not isinstance(schema, Mapping):
        return Proposal({})
    maker = _Maker(schema)
    try:
        whole = maker.merged(schema, 0)
        properties = whole.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        arguments: dict[str, Any] = {}
        sources: list[tuple[str, str]] = []
        for name in _texts(whole.get("required")):
            arguments[name], source = maker.argument(name, known.get(name, {}))
            sources.append((name, source))
    except _Unknown as exc:
        return Proposal(None, (), str(exc))
    wrong = _disallowed(schema, arguments)
    return Proposal(None, (), wrong) if wrong else Proposal(arguments, tuple(sources))


class _Maker:
    """Makes values for parts of one schema, whose ``$ref`` point into it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def argument(self, name: str, schema: Any) -> tuple[Any, str]:
        try:
            return self.value(schema, 0)
        except _Unknown as exc:
            raise _Unknown(f"argument {name} {exc}") from None

    def value(self, schema: Any, depth: int) -> tuple[Any, str]:
        """A value, and where it is from. Raises: _Unknown."""
        if not isinstance(schema, Mapping):
            return _PLAIN_TEXT, "made up"
        if depth > _DEEPEST:
            raise _Unknown("nests too deeply")
        whole = self.merged(schema, depth)
        for key in _GIVEN:
            given = whole.get(key)
            if key in ("examples", "enum"):
                given = next((each for each in given if each is not None), None) if isinstance(given, list) else None
            if given is not None:
                return given, {"const": "constant", "default": "default", "examples": "example", "enum": "choice"}[key]
        for key in ("anyOf", "oneOf"):
            if isinstance(whole.get(key), list):
                return self._one_of(whole, whole[key], depth)
        return self._typed(whole, depth)

    def _one_of(self, whole: Mapping[str, Any], choices: Sequence[Any], depth: int) -> tuple[Any, str]:
        why = _Unknown("has no choice of which a value is known")
        about = {"description": whole["description"]} if "description" in whole else {}
        ranked = sorted(choices, key=lambda each: isinstance(each, Mapping) and each.get("type") == "null")
        for choice in ranked:
            try:
                return self.value({**about, **choice} if isinstance(choice, Mapping) else choice, depth + 1)
            except _Unknown as exc:
                why = exc
        raise why

    def _typed(self, schema: Mapping[str, Any], depth: int) -> tuple[Any, str]:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer"), "made up"
        if kind == "boolean":
            return False, "made up"
        if kind == "null":
            return None, "made up"
        if kind == "array":
            return self._array(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        return _text(schema)

    def _array(self, schema: Mapping[str, Any], depth: int) -> tuple[list[Any], str]:
        least = schema.get("minItems", 0)
        count = max(1, least) if isinstance(least, int) else 1
        most = schema.get("maxItems", count)
        count = min(count, most) if isinstance(most, int) else count
        if count > 1 and schema.get("uniqueItems"):
            raise _Unknown(f"needs {count} different items")
        item, source = self.value(schema.get("items", {}), depth + 1) if count else (None, "made up")
        return [item] * count, source

    def _object(self, schema: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], str]:
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        made = {name: self.value(known.get(name, {}), depth + 1) for name in _texts(schema.get("required"))}
        sources = {source for _, source in made.values()}
        return {name: value for name, (value, _) in made.items()}, sources.pop() if len(sources) == 1 else "made up"

    def merged(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """With what its ``$ref`` and ``allOf`` add."""
        if depth > _DEEPEST:
            raise _Unknown("nests too deeply")
        found: dict[str, Any] = {}
        for part in (*self._referred(schema), *_mappings(schema.get("allOf"))):
            _add(found, self.merged(part, depth + 1))
        _add(found, {key: value for key, value in schema.items() if key not in ("$ref", "allOf")})
        return found

    def _referred(self, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return
        found: Any = self._root
        path = reference.removeprefix("#").strip("/")
        if not reference.startswith("#"):
            raise _Unknown(f"refers to {reference}")
        for step in path.split("/") if path else ():
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise _Unknown(f"refers to {reference}, which is not there")
        yield found


def _add(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if key == "properties" and isinstance(value, Mapping):
            found[key] = {**found.get(key, {}), **value}
        elif key == "required":
            found[key] = list(dict.fromkeys([*_texts(found.get(key)), *_texts(value)]))
        else:
            found[key] = value


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    step = schema.get("multipleOf") or (1 if whole else None)
    value: float = _PLAIN_NUMBER
    if isinstance(high, (int, float)):
        value = min(value, high)
    if isinstance(below, (int, float)) and not isinstance(below, bool) and value >= below:
        value = below - (step or 1)
    if isinstance(low, (int, float)):
        value = max(value, low)
    if isinstance(above, (int, float)) and not isinstance(above, bool) and value <= above:
        value = above + (step or 1)
        if isinstance(high, (int, float)) and value > high:
            value = (above + high) / 2
    if step:
        value = ceil(value / step) * step
        value = floor(high / step) * step if isinstance(high, (int, float)) and value > high else value
    return int(value) if whole or value == int(value) else value


def _text(schema: Mapping[str, Any]) -> tuple[str, str]:
    form = schema.get("format")
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form], f"a {form}"
    told = _EXAMPLE.search(str(schema.get("description", "")))
    pattern = schema.get("pattern")
    if told is not None and (not isinstance(pattern, str) or _fits(pattern, told[2])):
        return told[2], "example in its description"
    for shape, value in _SHAPES.items():
        if shape in str(schema.get("description", "")) and (not isinstance(pattern, str) or _fits(pattern, value)):
            return value, f"as {shape} in its description"
    if form in _OF_OTHERS:
        raise _Unknown("is a URL, and nothing says whose server may be asked")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    text = _PLAIN_TEXT
    if isinstance(least, int) and len(text) < least:
        text = (text * (least // len(text) + 1))[:least]
    if isinstance(most, int):
        text = text[:most]
    if isinstance(pattern, str) and not _fits(pattern, text):
        raise _Unknown(f"must match {pattern}")
    return text, "made up"


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _disallowed(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Why the schema does not allow these; empty where it does, or where nothing that validates is installed."""
    try:
        jsonschema: Any = import_module("jsonschema")
        validators: Any = import_module("jsonschema.validators")
    except ImportError:  # it comes with mcp
        return ""
    try:
        validators.validator_for(schema)(schema).validate(arguments)
    except jsonschema.ValidationError as exc:
        return f"nothing that fits its schema was found: {' '.join(str(exc.message).split())[:120]}"
    except Exception:  # noqa: BLE001 - a schema that cannot be read forbids nothing
        return ""
    return ""


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
