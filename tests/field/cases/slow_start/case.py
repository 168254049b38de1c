"""Imports, a module's body or a lifespan that take seconds before the handshake is answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, call, facts, stdio
from tools.field.client import PROTOCOL
from tools.field.first_screen import Truth

SOURCE = Source("slow_start")
GIVES_UP_S = 3.0
HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "field", "version": "1"}}


def play(how: str, start: Start) -> Facts:
    """The handshake, then forty quick calls, five at once."""
    with stdio(start, how) as client:
        for _ in range(1 if start.is_brief else 8):
            answered(client, [call(client, "look", up=str(number)) for number in range(5)], 20.0)
            time.sleep(0.15)
        return facts(handshake_s=client.exchanges[0].ms / 1e3)


def play_give_up(how: str, start: Start) -> Facts:
    """A client that waits three seconds for the handshake and goes."""
    with stdio(start, how, greets=False) as client:
        hello = client.request("initialize", HELLO)
        return facts(answered=answered(client, [hello], GIVES_UP_S))


LATER = (
    r"\blaz(?:y|ily)\b",
    r"\bbackground\b",
    r"\bafter the handshake\b",
    r"\bfirst use\b",
    r"\bdefer",
    r"\binside the function",
)
INNOCENTS = (quoted("look"), SOURCE.inside("look"))
MODEL = (r"\bload_model\b", SOURCE.inside("load_model"))
TRUTHS = {
    "imports": Truth(
        cause="the handshake waits for imports: pandas, scikit-learn, SQLAlchemy and PyMuPDF",
        account="time",
        named=(
            r"\b(?:pandas|sklearn|pymupdf|sqlalchemy)\b",
            SOURCE.at("    import pandas", "import pymupdf", "sklearn.ensemble", "sklearn.manifold", "sqlalchemy.orm"),
        ),
        mends=LATER,
        innocents=INNOCENTS,
        related=(SOURCE.at("import FastMCP"),),
    ),
    "module": Truth(
        cause="the handshake waits 5 s for `load_model()` in the module's body",
        account="time",
        named=(*MODEL, SOURCE.at("MODEL: dict")),
        mends=LATER,
        innocents=INNOCENTS,
    ),
    "lifespan": Truth(
        cause="the handshake waits 5 s for `load_model()` in the lifespan, which blocks the loop",
        account="time",
        named=(*MODEL, SOURCE.at("        MODEL = load_model()")),
        mends=LATER,
        innocents=INNOCENTS,
    ),
}


def row(
    variant: str, how: str, source: str, play: Callable[[Start], Facts], shows_fault: Callable[[Facts], bool]
) -> Row:
    bare = "case-fastmcp" if how == "imports" else ""
    return Row("slow_start", variant, source, TRUTHS[how], play, shows_fault, bare_environment=bare, is_slow=True)


ROWS = (
    row(
        "imports",
        "imports",
        "MarcusJellinghaus/mcp-workspace#212",
        partial(play, "imports"),
        lambda facts: facts["handshake_s"] > 1.5,
    ),
    row(
        "module",
        "module",
        "jgravelle/jdocmunch-mcp#110",
        partial(play, "module"),
        lambda facts: facts["handshake_s"] > 5,
    ),
    row(
        "lifespan",
        "lifespan",
        "doobidoo/mcp-memory-service#561",
        partial(play, "lifespan"),
        lambda facts: facts["handshake_s"] > 5,
    ),
    row(
        "module, the client gives up",
        "module",
        "jgravelle/jdocmunch-mcp#110",
        partial(play_give_up, "module"),
        lambda facts: not facts["answered"],
    ),
)
