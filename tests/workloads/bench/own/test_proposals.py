"""Arguments from schemas: what is proposed is allowed, and what cannot be known is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.bench.own.proposals import Proposal, proposed


def of(**properties: Any) -> Proposal:
    return proposed({"type": "object", "properties": properties, "required": list(properties)})


@pytest.mark.parametrize(
    ("schema", "value", "source"),
    [
        ({"type": "string", "default": "tea", "examples": ["cake"]}, "tea", "default"),
        ({"type": "string", "examples": ["cake"]}, "cake", "example"),
        ({"enum": ["up", "down"]}, "up", "choice"),
        ({"const": 7}, 7, "constant"),
        ({"type": "integer", "minimum": 10}, 10, "made up"),
        ({"type": "integer", "maximum": -3}, -3, "made up"),
        ({"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}, 1.25, "made up"),
        ({"type": "integer", "multipleOf": 5, "minimum": 12}, 15, "made up"),
        ({"type": "boolean"}, False, "made up"),
        ({"type": "string", "minLength": 9}, "exampleex", "made up"),
        ({"type": "string", "maxLength": 2}, "ex", "made up"),
        ({"type": "string", "format": "date"}, "2026-01-15", "a date"),
        (
            {"type": "string", "description": "IANA timezone name (e.g., 'America/New_York')."},
            "America/New_York",
            "example in its description",
        ),
        (
            {"type": "string", "description": "Time to convert in 24-hour format (HH:MM)"},
            "12:00",
            "as HH:MM in its description",
        ),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1], "made up"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1, "made up"),
        ({"type": ["string", "null"]}, "example", "made up"),
        ({"$ref": "#/$defs/Colour"}, "red", "choice"),
        ({"type": "object", "properties": {"x": {"default": 3}}, "required": ["x"]}, {"x": 3}, "default"),
        ({}, "example", "made up"),
    ],
)
def test_a_value_is_from_the_schema_if_it_gives_one(schema: Any, value: Any, source: str) -> None:
    whole = {
        "type": "object",
        "properties": {"it": schema},
        "required": ["it"],
        "$defs": {"Colour": {"enum": ["red", "green"]}},
    }
    found = proposed(whole)
    assert (found.arguments, found.sources) == ({"it": value}, (("it", source),))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "format": "uri"}, "argument it is a URL, and nothing says whose server may be asked"),
        ({"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"}, "argument it must match ^[A-Z]{3}-[0-9]+$"),
        ({"type": "array", "minItems": 2, "uniqueItems": True, "items": {}}, "argument it needs 2 different items"),
        ({"$ref": "#/$defs/Nowhere"}, "argument it refers to #/$defs/Nowhere, which is not there"),
        ({"not": {}}, "nothing that fits its schema was found"),
    ],
)
def test_what_cannot_be_known_is_refused_with_the_reason(schema: Any, why: str) -> None:
    found = of(it=schema)
    assert found.arguments is None
    assert found.refused.startswith(why)


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}, "required": ["child"]}
    found = proposed({"$defs": {"tree": tree}, "$ref": "#/$defs/tree"})
    assert found.arguments is None
    assert "nests too deeply" in found.refused


def test_what_is_not_required_is_left_out() -> None:
    assert proposed({"type": "object", "properties": {"page": {"type": "integer"}}}) == Proposal({})
    assert proposed(None) == Proposal({})


NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": st.integers(-50, 50),
        "maximum": st.integers(-50, 50),
        "exclusiveMinimum": st.integers(-50, 50),
        "exclusiveMaximum": st.integers(-50, 50),
        "multipleOf": st.integers(1, 9),
    },
)
TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")}, optional={"minLength": st.integers(0, 20), "maxLength": st.integers(0, 20)}
)
SCHEMAS = st.recursive(
    NUMBERS | TEXTS | st.just({"type": "boolean"}),
    lambda inner: (
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3))
        | st.builds(lambda one: {"type": "object", "properties": {"a": one}, "required": ["a"]}, inner)
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=60)
@given(SCHEMAS)
def test_whatever_is_proposed_is_valid(schema: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    found = of(it=schema)
    if found.arguments is not None:
        jsonschema.validate(found.arguments["it"], schema)
    else:
        assert found.refused
