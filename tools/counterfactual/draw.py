"""Servers drawn from seeds: one to three faults, or none for one in eight, beside innocent tools.

Every name and number is drawn, so nothing of a server's source says which line is at fault. The same seed always gives
the same server, as long as the files of the kinds stay as they are.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass

from tools.counterfactual.kind import GIVES_UP_S, SDKS, TRANSPORTS, Form, Kind, Load, Range, all_innocents, all_kinds

HEALTHY_ONE_IN = 8
MOST_TOOLS = 4
CAUSES = (1, 1, 1, 2, 2, 3)

_VERBS = re.findall(
    r"\w+",
    "find make draw send read sort join list move scan match merge price rank tag plan route check fetch store build"
    " count trace split pack map",
)
_NOUNS = re.findall(
    r"\w+",
    "tickets photos orders pages trips notes tracks bills cities users parcels recipes rooms seats songs plants"
    " invoices reports badges quotes labels stocks meters vessels claims forms shifts grants lessons roads wells tides"
    " crates",
)

_HEADS = {
    "mcp1": "from mcp.server.fastmcp import Context, FastMCP",
    "mcp2": "from mcp.server import MCPServer\nfrom mcp.server.mcpserver import Context",
    "fastmcp3": "from fastmcp import Context, FastMCP",
    "fastmcp4": "from fastmcp import Context, FastMCP",
}
_CLASSES = {"mcp1": "FastMCP", "mcp2": "MCPServer", "fastmcp3": "FastMCP", "fastmcp4": "FastMCP"}


@dataclass(frozen=True, slots=True)
class Caller:
    """One client's calls of one operation, one after another; ``group`` is the number of its piece of the server."""

    operation: str
    calls: int
    pause_ms: int
    delay_ms: int
    after_first: bool
    group: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault of one server: where it stands in the source with every fault in it, and the words that name it."""

    kind: str
    mend: str
    lines: frozenset[int]
    functions: frozenset[str]
    """Those that hold one of its lines, tools among them."""
    things: tuple[str, ...]
    holders: tuple[str, ...]
    holder_lines: frozenset[int]


@dataclass(frozen=True, slots=True)
class Server:
    """What one seed gives. ``source`` of a set of mended causes (by number) is the server with the others in it."""

    seed: str
    sdk: str
    transport: str
    callers: tuple[Caller, ...]
    gives_up_s: float
    is_measured_by_cpu: bool
    causes: tuple[Cause, ...]
    sources: Mapping[int | None, str]
    """By the number of the cause that is mended; with None, all are there."""

    @property
    def digest(self) -> str:
        """Identifies what is run: the sources and the load."""
        shape = [self.sdk, self.transport, self.gives_up_s, [asdict(one) for one in self.callers]]
        said = json.dumps([shape, [self.sources[key] for key in (None, *range(len(self.causes)))]])
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def draw(seed: int) -> Server:
    """Returns the server of a seed: a healthy one for one in eight, else with one to three faults.

    Odd and even seeds are two series, each of which has every kind and the healthy ones equally often.
    """
    drawn = random.Random(f"mcp_probe counterfactual {seed}")
    kinds = list(all_kinds().values())
    number, parity = divmod(seed, 2)
    if number % HEALTHY_ONE_IN == HEALTHY_ONE_IN - 1:
        sdk, transport = drawn.choice(SDKS), drawn.choice(TRANSPORTS)
        faults: list[Kind] = []
    else:
        # Each kind comes first equally often: a round has every kind once, in an order of its own.
        rank = number - number // HEALTHY_ONE_IN
        around = random.Random(f"mcp_probe round {parity} {rank // len(kinds)}").sample(kinds, len(kinds))
        first = around[rank % len(kinds)]
        sdk, transport = drawn.choice(first.sdks), drawn.choice(first.transports)
        others = [kind for kind in kinds if kind is not first and sdk in kind.sdks and transport in kind.transports]
        faults = [first, *drawn.sample(others, drawn.choice(CAUSES) - 1)]
    tools = sum(len(fault.tools) for fault in faults)
    fitting = [one for one in all_innocents().values() if sdk in one.sdks and transport in one.transports]
    innocents = drawn.sample(fitting, max(0, min(len(fitting), drawn.randint(2, MOST_TOOLS) - tools)))
    return compose(str(seed), sdk, transport, faults, innocents, drawn)


def alone(kind: Kind, sdk: str, transport: str, number: int = 0) -> Server:
    """Returns a server that has ``kind`` and nothing else; ``number`` draws other names and figures."""
    drawn = random.Random(f"mcp_probe alone {kind.name} {number}")
    faults, innocents = ([kind], []) if kind.mend else ([], [kind])
    return compose(f"{kind.name}-{sdk}-{transport}-{number}", sdk, transport, faults, innocents, drawn)


def compose(
    seed: str, sdk: str, transport: str, faults: Sequence[Kind], innocents: Sequence[Kind], drawn: random.Random
) -> Server:
    """Joins the pieces in an order of chance."""
    pieces = [*faults, *innocents]
    order = drawn.sample(range(len(pieces)), len(pieces))
    taken: set[str] = set()
    head = {"SERVICE": f"{_noun(drawn, taken).upper()}_URL", "FOLDER": f"{_noun(drawn, taken).upper()}_FOLDER"}
    chosen = [_chosen(piece, head, drawn, taken) for piece in pieces]
    title = _noun(drawn, taken)
    callers = [
        caller for number, piece in enumerate(pieces) for caller in _callers(piece, chosen[number], number, drawn)
    ]
    sources: dict[int | None, str] = {}
    causes: list[Cause] = []
    for mended in (None, *range(len(faults))):
        lines = _head(sdk, transport, title, head, [(pieces[n], chosen[n]) for n in order])
        for number in order:
            form: Form = "mended" if number == mended else "sick"
            body = [_replaced(line, chosen[number]) for line in pieces[number].in_form(form)]
            if mended is None and number < len(faults):
                causes.append(_cause(faults[number], chosen[number], body, len(lines)))
            lines += [re.sub(r"\s*#[!?]$", "", line) for line in body] + ["", ""]
        lines += _tail(sdk, transport, [(pieces[n], chosen[n]) for n in order])
        sources[mended] = "\n".join(lines) + "\n"
    by_fault = [n for n in order if n < len(faults)]
    return Server(
        seed=seed,
        sdk=sdk,
        transport=transport,
        callers=tuple(callers),
        gives_up_s=min((kind.gives_up_s for kind in pieces), default=GIVES_UP_S),
        is_measured_by_cpu=any(kind.measure == "cpu" for kind in faults),
        causes=tuple(causes[by_fault.index(n)] for n in range(len(faults))),
        sources=sources,
    )


def _cause(kind: Kind, chosen: Mapping[str, str], body: Sequence[str], offset: int) -> Cause:
    def marked(mark: str) -> frozenset[int]:
        return frozenset(offset + number for number, line in enumerate(body, 1) if line.endswith(mark))

    lines = marked("#!")
    functions = (
        node
        for node in ast.walk(ast.parse("\n".join(body)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Cause(
        kind.name,
        kind.mend,
        lines,
        frozenset(
            node.name
            for node in functions
            if any(node.lineno <= line - offset <= (node.end_lineno or 0) for line in lines)
        ),
        tuple(_replaced(thing, chosen) for thing in kind.things),
        tuple(_replaced(holder, chosen) for holder in kind.holders),
        marked("#?"),
    )


def _noun(drawn: random.Random, taken: set[str]) -> str:
    return _free(taken, lambda: drawn.choice(_NOUNS))


def _free(taken: set[str], make: Callable[[], str]) -> str:
    for _ in range(1000):
        name = make()
        if name not in taken:
            taken.add(name)
            return name
    raise ValueError("the names are used up")


def _chosen(piece: Kind, head: Mapping[str, str], drawn: random.Random, taken: set[str]) -> Mapping[str, str]:
    """Draws a text for every name and number that the piece leaves open, and for all that it defines at its top."""
    numbers = {name: str(drawn.randint(low, high)) for name, (low, high) in piece.numbers.items()}
    names = sorted({*piece.names, *piece.tools, *_defined(piece)} - numbers.keys() - head.keys())
    return {**head, **numbers, **{name: _named_like(name, piece.tools, drawn, taken) for name in names}}


def _defined(piece: Kind) -> Set[str]:
    found: set[str] = set()
    for form in ("sick", "mended"):
        for node in ast.parse("\n".join(piece.in_form(form))).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def _named_like(name: str, tools: Set[str], drawn: random.Random, taken: set[str]) -> str:
    bare = name.lstrip("_")
    prefix = name[: len(name) - len(bare)]
    if name in tools:
        return _free(taken, lambda: f"{drawn.choice(_VERBS)}_{drawn.choice(_NOUNS)}")
    if bare.isupper():
        return prefix + _free(taken, lambda: drawn.choice(_NOUNS)).upper()
    if bare[0].isupper():
        return prefix + _free(taken, lambda: drawn.choice(_NOUNS).title() + drawn.choice(_NOUNS).title())
    return prefix + _free(taken, lambda: f"{drawn.choice(_VERBS)}_{drawn.choice(_NOUNS)}")


def _replaced(text: str, chosen: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: chosen.get(found[0], found[0]), text)


def _callers(piece: Kind, chosen: Mapping[str, str], group: int, drawn: random.Random) -> list[Caller]:
    def within(given: Range) -> int:
        return drawn.randint(*given)

    def one(load: Load) -> Caller:
        operation = _replaced(load.operation, {} if load.operation.startswith("GET ") else chosen)
        return Caller(operation, within(load.calls), within(load.pause), within(load.delay), load.after_first, group)

    return [one(load) for load in piece.loads for _ in range(within(load.callers))]


def _head(
    sdk: str, transport: str, title: str, head: Mapping[str, str], pieces: Sequence[tuple[Kind, Mapping[str, str]]]
) -> list[str]:
    contexts = [chosen[piece.lifespan] for piece, chosen in pieces if piece.lifespan]
    lines = [f'"""A server for {title}."""', ""]
    if contexts:
        lines.append("from contextlib import AsyncExitStack, asynccontextmanager")
    lines += ["import os", "from pathlib import Path", ""]
    if transport == "http":
        lines.append("import uvicorn")
    lines += [*_HEADS[sdk].split("\n"), ""]
    lines += [f'{head["SERVICE"]} = os.environ["SERVICE"]', f'{head["FOLDER"]} = Path(os.environ["FOLDER"])', ""]
    if contexts:
        lines += ["", "@asynccontextmanager", "async def lifespan(app):", "    async with AsyncExitStack() as stack:"]
        lines += [f"        await stack.enter_async_context({name}())" for name in contexts]
        lines += ["        yield {}", "", ""]
    return [*lines, f'server = {_CLASSES[sdk]}("{title}"{", lifespan=lifespan" if contexts else ""})', "", ""]


def _tail(sdk: str, transport: str, pieces: Sequence[tuple[Kind, Mapping[str, str]]]) -> list[str]:
    if transport == "stdio":
        banner = "show_banner=False" if sdk.startswith("fastmcp") else ""
        return ['if __name__ == "__main__":', f"    server.run({banner})"]
    lines = ['if __name__ == "__main__":']
    lines.append(f"    app = server.{'http_app' if sdk.startswith('fastmcp') else 'streamable_http_app'}()")
    lines += [f"    app = {chosen[piece.middleware]}(app)" for piece, chosen in pieces if piece.middleware]
    return [*lines, '    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")']
