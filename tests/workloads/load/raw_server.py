"""A stdio MCP server of thirty lines, without an SDK: what it does to a call is what the call's tool is named after.

It handles one line after another, so a call that stalls stalls all behind it, for exactly as long as it was told.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

LEGACY = "--legacy" in sys.argv
counts: dict[str, int] = {}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(number: Any, what: str, **more: Any) -> None:
    say({"id": number, "result": {"content": [{"type": "text", "text": what}], **more}})


def call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    counts[name] = counts.get(name, 0) + 1
    if name == "stall" and counts[name] % int(arguments["every"]) == 0:
        time.sleep(arguments["ms"] / 1000)
    if name == "exit" and counts[name] >= int(arguments.get("at", 1)):
        print("no more of this", file=sys.stderr, flush=True)
        sys.exit(3)
    if name == "noise":
        print("Debug: about to answer", flush=True)
    if name == "ask":
        say({"id": "from-the-server", "method": "ping"})
        answer = json.loads(sys.stdin.readline())
        text(number, json.dumps(answer.get("result")))
    elif name == "refuse":
        text(number, "no such item", isError=True)
    elif name == "error":
        say({"id": number, "error": {"code": -32603, "message": "broken"}})
    elif name == "count":
        text(number, json.dumps(counts))
    elif name == "big":
        text(number, "x" * arguments["size"])
    elif name != "never":
        text(number, name)


NAMES = ("echo", "stall", "exit", "noise", "ask", "refuse", "error", "count", "big", "never")


def answer(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message["method"], message.get("params", {})
    if number is None:
        counts[method] = counts.get(method, 0) + 1
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments", {}))
    elif method == "tools/list":
        say({"id": number, "result": {"tools": [{"name": name, "inputSchema": {}} for name in NAMES]}})
    elif method == "server/discover" and not LEGACY:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
        say({"id": number, "result": found})
    elif method == "initialize" and LEGACY:
        found = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
        say({"id": number, "result": found})
    else:
        say({"id": number, "error": {"code": -32601, "message": f"no {method}"}})


if __name__ == "__main__":
    for line in sys.stdin:
        answer(json.loads(line))
