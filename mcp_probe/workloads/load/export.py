"""A mix as a script for another load generator, which runs it on many machines: Locust or k6. HTTP only.

The scripts need nothing of this package. Each sends what :mod:`mcp_probe.workloads.load` sends, but for the instant of
sending in ``_meta``, which means nothing on another machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files
from math import ceil
from typing import Any, Literal
from urllib.parse import urlsplit

from mcp_probe.errors import OptionError
from mcp_probe.workloads.load.mix import Mix
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.wire import LEGACY, MODERN_META, Order, headers_of

Tool = Literal["locust", "k6"]

_FILES: dict[Tool, str] = {"locust": "locust.py.txt", "k6": "k6.js"}
"""In ``scripts``, with marks for the values. The first is no Python before they are filled in, and is not named so."""

USER_RATE = 25.0
"""Requests a second that one Locust user sends at most: users are what Locust shares out among its machines."""


def script_of(tool: Tool, mix: Mix, target: Target) -> str:
    """The script's text.

    Raises: OptionError for what the tool cannot do: Poisson arrivals in k6.
    """
    if tool == "k6" and mix.arrivals == "poisson":
        raise OptionError("k6 has constant arrivals only; export to Locust, or make the arrivals constant.")
    modern = target.era != "legacy"
    parts = urlsplit(target.url)
    values: dict[str, Any] = {
        "URL": target.url,
        "HOST": f"{parts.scheme}://{parts.netloc}",
        "RATE": mix.rate,
        "USERS": max(1, ceil(mix.rate / USER_RATE)),
        "POISSON": mix.arrivals == "poisson",
        "SECONDS": max(1, ceil(mix.window_s)),
        "WARM_UP": ceil(mix.warm_up),
        "RUN": max(1, ceil(mix.window_s)) + ceil(mix.warm_up),
        "DRAIN": ceil(mix.drain),
        "MODERN": modern,
        "META": MODERN_META if modern else {},
        "CALLS": [
            {
                "operation": call.operation,
                "weight": call.weight,
                "method": call.method,
                "orders": [_order(Order(call.method, variant), modern, target) for variant in call.variants],
            }
            for call in mix.calls
        ],
        "HEADERS": {**headers_of(Order("initialize", {}), modern=False), **target.headers},
        "VUS": min(10_000, max(10, ceil(mix.rate))),
    }
    text = (files("mcp_probe.workloads.load") / "scripts" / _FILES[tool]).read_text("utf-8")
    # In JSON all is ASCII: U+2028 and U+2029 would end a line in older JavaScript.
    literal: Callable[[Any], str] = json.dumps if tool == "k6" else repr
    told = {name: literal(value) for name, value in values.items()} | {"LEGACY": LEGACY}
    return re.sub("@@([A-Z_]+)@@", lambda found: told[found[1]], text)  # at once: a value may look like a mark


def _order(order: Order, modern: bool, target: Target) -> dict[str, Any]:
    return {"params": dict(order.params), "headers": {**headers_of(order, modern=modern), **target.headers}}
