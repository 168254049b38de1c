"""Kinds of faults, read from the files in ``kinds/`` and ``innocents/``; their README describes the format."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tools.counterfactual.mends import MENDS

HERE = Path(__file__).parent
SDKS = ("mcp1", "mcp2", "fastmcp3", "fastmcp4")
TRANSPORTS = ("stdio", "http")
STATES = (
    "running",
    "blocked",
    "no gil",
    "no cpu",
    "behind",
    "thread queue",
    "thread running",
    "thread waiting",
    "suspended",
    "in transport",
    "gc",
    "start",
    "first",
    "spin",
)
KEYS = {
    *("cites", "state", "sdks", "transports", "names", "numbers", "load", "mend", "thing", "holder"),
    *("lifespan", "middleware", "gives_up", "measure"),
}
GIVES_UP_S = 20.0

Form = Literal["sick", "mended"]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Load:
    """Callers of one operation, each of which makes one call after another.

    ``operation`` is a tool's name in the kind's body, or ``GET /path``. Pauses and delays are in ms.
    """

    operation: str
    callers: Range
    calls: Range
    pause: Range = (0, 0)
    delay: Range = (0, 0)
    after_first: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault, or an innocent piece of a server, which has no mend."""

    name: str
    fault: str
    cites: str
    state: str
    sdks: tuple[str, ...]
    transports: tuple[str, ...]
    names: tuple[str, ...]
    numbers: Mapping[str, Range]
    loads: tuple[Load, ...]
    mend: str
    things: tuple[str, ...]
    holders: tuple[str, ...]
    lifespan: str
    middleware: str
    gives_up_s: float
    measure: Literal["waiting", "cpu"]
    body: str

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(re.findall(r"@server\.tool\(\)\s*\n(?:async )?def (\w+)", self.body))

    def in_form(self, form: Form) -> list[str]:
        """Returns the body's lines in that form, with the marks ``#!`` and ``#?``."""
        lines, part = [], ""
        for line in self.body.split("\n"):
            mark = line.strip()
            if mark.startswith("#: "):
                part = mark.removeprefix("#: ").removesuffix("end")
            elif not part or part == form:
                lines.append(line)
        return lines


@cache
def all_kinds() -> Mapping[str, Kind]:
    """Reads every fault, by name.

    Raises:
        ValueError: A file breaks the format; the message says which, and how.
    """
    return {path.stem: _read(path) for path in sorted((HERE / "kinds").glob("*.py"))}


@cache
def all_innocents() -> Mapping[str, Kind]:
    """Reads every innocent piece, by name.

    Raises:
        ValueError: A file breaks the format; the message says which, and how.
    """
    return {path.stem: _read(path) for path in sorted((HERE / "innocents").glob("*.py"))}


def _read(path: Path) -> Kind:
    text = path.read_text("utf-8")
    try:
        return _parse(path.stem, text, is_fault=path.parent.name == "kinds")
    except (SyntaxError, ValueError) as exc:
        raise ValueError(f"{path.relative_to(HERE)}: {exc}") from exc


def _parse(name: str, text: str, *, is_fault: bool) -> Kind:
    tree = ast.parse(text)
    doc = ast.get_docstring(tree) or ""
    said: dict[str, list[str]] = {}
    fault, _, rest = doc.partition("\n")
    for line in rest.strip().split("\n"):
        key, colon, value = line.partition(":")
        if not colon or key.strip() not in KEYS:
            raise ValueError(f"the docstring's line {line!r} is not `key: value` with one of {sorted(KEYS)}")
        said.setdefault(key.strip(), []).append(value.strip())
    one = {key: " ".join(values) for key, values in said.items()}
    wanted = {"state", "sdks", "transports", "load"} | ({"cites", "mend"} if is_fault else set())
    if missing := wanted - one.keys():
        raise ValueError(f"the docstring has no {sorted(missing)}")
    body = "\n".join(text.split("\n")[tree.body[0].end_lineno or 0 :]).strip("\n")
    kind = Kind(
        name=name,
        fault=fault.strip(),
        cites=one.get("cites", ""),
        state=one["state"],
        sdks=tuple(one["sdks"].split()),
        transports=tuple(one["transports"].split()),
        names=tuple(one.get("names", "").split()),
        numbers={key: _range(value) for key, _, value in (n.partition("=") for n in one.get("numbers", "").split())},
        loads=tuple(_load(line) for line in said["load"]),
        mend=one.get("mend", ""),
        things=_alternatives(one.get("thing", "")),
        holders=_alternatives(one.get("holder", "")),
        lifespan=one.get("lifespan", ""),
        middleware=one.get("middleware", ""),
        gives_up_s=float(one.get("gives_up", GIVES_UP_S)),
        measure="cpu" if one.get("measure", "waiting") == "cpu" else "waiting",
        body=body,
    )
    _check(kind, is_fault=is_fault)
    return kind


def _check(kind: Kind, *, is_fault: bool) -> None:
    def refuse(what: str, found: object, known: object) -> None:
        raise ValueError(f"{what}: found {found}, expected {known}")

    if kind.state not in STATES:
        refuse("state", kind.state, STATES)
    if not set(kind.sdks) <= set(SDKS):
        refuse("sdks", kind.sdks, SDKS)
    if not set(kind.transports) <= set(TRANSPORTS):
        refuse("transports", kind.transports, TRANSPORTS)
    if is_fault and not set(kind.mend.split(" or ")) <= MENDS.keys():
        refuse("mend", kind.mend, sorted(MENDS))
    if kind.state == "start" and kind.transports != ("stdio",):
        refuse("transports of a fault of the start, which is waited for over stdio only", kind.transports, "stdio")
    for load in kind.loads:
        if not load.operation.startswith("GET ") and load.operation not in kind.tools:
            refuse("load", load.operation, sorted(kind.tools))
    if tools := kind.tools & set(kind.things):
        refuse("thing", sorted(tools), "no tool: every verdict names one")
    if is_fault and not any(line.endswith("#!") for line in kind.in_form("sick")):
        refuse("marks", "no line of the sick form that ends with #!", "one at least")
    for form in ("sick", "mended"):
        ast.parse("\n".join(kind.in_form(form)))


def _alternatives(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(" or ") if part.strip())


def _range(value: str) -> Range:
    low, dots, high = value.partition("..")
    return int(low), int(high if dots else low)


def _load(line: str) -> Load:
    found = re.fullmatch(
        r"(?P<operation>GET \S+|\w+) callers (?P<callers>[\d.]+) calls (?P<calls>[\d.]+)"
        r"(?: pause (?P<pause>[\d.]+))?(?: delay (?P<delay>[\d.]+))?(?P<after> after first)?",
        line.strip(),
    )
    if found is None:
        raise ValueError(
            f"load: found {line!r}, expected"
            " `TOOL callers 4..8 calls 6..10 [pause 0..50] [delay 300..500] [after first]`"
        )
    return Load(
        found["operation"],
        _range(found["callers"]),
        _range(found["calls"]),
        _range(found["pause"] or "0"),
        _range(found["delay"] or "0"),
        found["after"] is not None,
    )
