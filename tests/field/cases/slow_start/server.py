# mypy: ignore-errors
# ruff: noqa: F401
"""A server that takes seconds to start. Usage: server.py imports|module|lifespan."""

import sys
import time
from contextlib import asynccontextmanager

from fastmcp import FastMCP

HOW = sys.argv[1]


def load_model() -> dict:
    """Reads weights from a slow disk, then builds tables."""
    time.sleep(2.5)
    table = {}
    end = time.perf_counter() + 2.5
    number = 0
    while time.perf_counter() < end:
        table[number % 5000] = number * number
        number += 1
    return table


if HOW == "imports":
    import pandas
    import pymupdf
    import sklearn.ensemble
    import sklearn.manifold
    import sklearn.pipeline
    import sqlalchemy.orm

MODEL: dict = load_model() if HOW == "module" else {}


@asynccontextmanager
async def lifespan(server):
    global MODEL
    if HOW == "lifespan":
        MODEL = load_model()
    yield


server = FastMCP("documents", lifespan=lifespan)


@server.tool
async def look(up: str) -> str:
    return up


if __name__ == "__main__":
    server.run(show_banner=False, log_level="warning")
