"""A tool reads a small file in a worker thread.

state: thread running
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: LETTER TOOL write_letter
numbers: LINES=500..2000
load: TOOL callers 2..3 calls 6..9 pause 10..40
"""

import anyio

LETTER = FOLDER / "letter.txt"


def write_letter() -> None:
    LETTER.write_text("".join(f"line {number} of a letter\n" for number in range(LINES)), "utf-8")


write_letter()


@server.tool()
async def TOOL(text: str) -> str:
    letter = await anyio.to_thread.run_sync(LETTER.read_text, "utf-8")
    return f"{text}: {letter.count('line')} lines"
