"""A middleware asks the identity provider about the same token in every request, before any tool can run.

cites: PrefectHQ/fastmcp#3543, ScottRBK/forgetful#31, PrefectHQ/fastmcp#3285
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: TOOL
numbers: ASK_MS=50..90
load: TOOL callers 3..5 calls 12..18
mend: cache
thing: introspect or require_token or identity provider
middleware: require_token
"""

import httpx
from cachetools import TTLCache
from starlette.responses import PlainTextResponse

IDENTITY = httpx.AsyncClient(timeout=10)
#: mended
CHECKED = TTLCache(maxsize=1000, ttl=60)
#: end


async def introspect(token: str) -> bool:
    answer = await IDENTITY.get(f"{SERVICE}/ASK_MS", headers={"authorization": token})  #!
    return answer.is_success and answer.json()["ok"]  #!


def require_token(app):
    async def guarded(scope, receive, send):
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        #: sick
        is_known = await introspect(token)  #!
        #: mended
        is_known = CHECKED.get(token)
        if is_known is None:
            is_known = CHECKED[token] = await introspect(token)
        #: end
        if is_known:
            await app(scope, receive, send)
        else:
            await PlainTextResponse("unknown token", status_code=401)(scope, receive, send)

    return guarded


@server.tool()
async def TOOL(text: str) -> str:
    return text.title()
