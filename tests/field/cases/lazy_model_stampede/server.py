# mypy: ignore-errors
"""A model that is loaded lazily in the first call, in a worker thread, without a lock. Usage: server.py [SECONDS]."""

import asyncio
import sys
import time

from fastmcp import FastMCP

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
server = FastMCP("palace")
_model = None


def get_model():
    global _model
    if _model is None:
        time.sleep(SECONDS)  # fetches and reads the weights
        _model = {"words": list(range(1000))}
    return _model


def embed(text: str) -> int:
    model = get_model()
    time.sleep(0.004)
    return len(model["words"]) + len(text)


@server.tool
async def search(query: str) -> int:
    return await asyncio.to_thread(embed, query)


if __name__ == "__main__":
    server.run(show_banner=False, log_level="warning")
