# mypy: ignore-errors
"""An HTTP server whose token verifier asks two endpoints of an identity provider for every request.

Usage: server.py PORT async|shared|sync BACKEND.
"""

import asyncio
import sys

import httpx
import requests
from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, TokenVerifier

PORT, MODE, BACKEND = int(sys.argv[1]), sys.argv[2], sys.argv[3]
shared = httpx.AsyncClient()


class RemoteVerifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        if MODE == "shared":
            keys = await shared.get(f"{BACKEND}/jwks")
            who = await shared.get(f"{BACKEND}/userinfo")
        elif MODE == "async":
            async with httpx.AsyncClient() as client:
                keys = await client.get(f"{BACKEND}/jwks")
                who = await client.get(f"{BACKEND}/userinfo")
        else:
            keys = requests.get(f"{BACKEND}/jwks", timeout=10)
            who = requests.get(f"{BACKEND}/userinfo", timeout=10)
        keys.raise_for_status()
        return AccessToken(token=token, client_id="reader", scopes=[]) if who.json()["active"] else None


server = FastMCP("memories", auth=RemoteVerifier())


@server.tool
async def recall(topic: str) -> str:
    await asyncio.sleep(0.003)
    return f"nothing about {topic}"


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=PORT, show_banner=False, log_level="warning")
