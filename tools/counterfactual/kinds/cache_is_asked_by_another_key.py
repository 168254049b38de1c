"""Parsed sources are kept under one form of their name and looked up under another, so the cache never hits and each call parses again.

cites: jgravelle/jcodemunch-mcp#151
state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: PARSED SOURCE safe_key parse_symbols symbols_of TOOL
numbers: FUNCTIONS=420..560
load: TOOL callers 3..4 calls 5..7
mend: cache or compute-less
thing: PARSED or symbols_of or parse_symbols
"""

import ast
import re

PARSED: dict[str, list[str]] = {}
SOURCE = "\n".join(
    f"def handler_{number}(request, *, limit={number}):\n    rows = [row.id for row in request.rows if row.id > limit]\n    return sorted(rows)[:{number}]\n"
    for number in range(FUNCTIONS)
)


def safe_key(repository: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", repository.lower())


def parse_symbols() -> list[str]:
    tree = ast.parse(SOURCE)  #!
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]  #!


def symbols_of(repository: str) -> list[str]:
    found = PARSED.get(safe_key(repository))
    if found is None:
        found = parse_symbols()  #!
        #: sick
        PARSED[repository] = found
        #: mended
        PARSED[safe_key(repository)] = found
        #: end
    return found


@server.tool()
async def TOOL(text: str) -> str:
    """Counts the symbols of the repository whose names end like the text's length."""
    symbols = symbols_of("Acme/Web Shop")  #!
    return f"{text}: {sum(symbol.endswith(str(len(text) % 10)) for symbol in symbols)}"
