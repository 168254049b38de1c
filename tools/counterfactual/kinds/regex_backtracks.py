"""A regular expression backtracks over long runs of blanks on the event loop, and quick tools wait beside it.

cites: BerriAI/litellm#32353 google/adk-python#7082
state: running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TRAILING TIDY GREET page tidy
numbers: BLANKS=2200..2800
load: TIDY callers 3..4 calls 4..5
load: GREET callers 3..4 calls 4..6 pause 0..10
mend: compute-less
thing: TRAILING or regular expression or regex or backtrack
holder: TIDY or tidy
"""

import re

TRAILING = re.compile(r"\s+$")


def page(title: str) -> str:
    rows = [f"{title} {number}" + " " * BLANKS + f"| {number * 7}   " for number in range(3)]
    return "\n".join(rows)


def tidy(text: str) -> str:
    #: sick
    return "\n".join(TRAILING.sub("", line) for line in text.split("\n"))  #!
    #: mended
    return "\n".join(line.rstrip() for line in text.split("\n"))
    #: end


@server.tool()
async def TIDY(text: str) -> str:
    lines = tidy(page(text))  #!
    return f"{text}: {len(lines)} characters"


@server.tool()
async def GREET(text: str) -> str:
    return f"hello {text}"
