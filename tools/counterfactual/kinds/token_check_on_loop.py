"""A middleware asks the identity provider with a blocking client, on the event loop, in every request.

cites: redis/agent-memory-server#284, iflytek/astron-agent#813
state: blocked
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: TOOL
numbers: ASK_MS=40..60
load: TOOL callers 5..7 calls 4..5
mend: async-client or to-thread or cache
thing: introspect or require_token or requests
middleware: require_token
"""

import httpx
import requests
from starlette.responses import PlainTextResponse

#: mended
IDENTITY = httpx.AsyncClient(timeout=10)
#: end


#: sick
def introspect(token: str) -> bool:
    answer = requests.get(f"{SERVICE}/ASK_MS", headers={"authorization": token}, timeout=10)  #!
    return answer.ok and answer.json()["ok"]


#: mended
async def introspect(token: str) -> bool:
    answer = await IDENTITY.get(f"{SERVICE}/ASK_MS", headers={"authorization": token})
    return answer.is_success and answer.json()["ok"]


#: end


def require_token(app):
    async def guarded(scope, receive, send):
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        #: sick
        is_known = introspect(token)  #!
        #: mended
        is_known = await introspect(token)
        #: end
        if is_known:
            await app(scope, receive, send)
        else:
            await PlainTextResponse("unknown token", status_code=401)(scope, receive, send)

    return guarded


@server.tool()
async def TOOL(text: str) -> str:
    return text.title()
