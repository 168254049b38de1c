# mypy: ignore-errors
"""Every call keeps 36 kB in a module's list."""

from fastmcp import FastMCP

server = FastMCP("history")
HISTORY: list[dict] = []


@server.tool
async def note(text: str) -> int:
    HISTORY.append({"text": text, "context": [f"{text} {number}" for number in range(500)]})
    return len(HISTORY)


if __name__ == "__main__":
    server.run(show_banner=False, log_level="warning")
