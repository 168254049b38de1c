"""Every error is tried again with a growing pause, also the answer that there is no such record.

cites: allenai/tutormoments#52, mozilla-releng/scriptworker-scripts#912
state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: RECORDS RecordMissing fetch_record TOOL
numbers: ANSWER_MS=10..20 BASE_MS=30..45
load: TOOL callers 3..4 calls 3..4
mend: retry-less
thing: retry or fetch_record
"""

import httpx
from tenacity import retry, retry_if_not_exception_type, stop_after_attempt, wait_exponential


RECORDS = httpx.AsyncClient(base_url=SERVICE)


class RecordMissing(LookupError):
    pass


#: sick
@retry(stop=stop_after_attempt(5), wait=wait_exponential(multiplier=BASE_MS / 1000), reraise=True)  #!
#: mended
@retry(
    stop=stop_after_attempt(5),
    wait=wait_exponential(multiplier=BASE_MS / 1000),
    retry=retry_if_not_exception_type(RecordMissing),
    reraise=True,
)
#: end
async def fetch_record(name: str) -> str:
    answer = await RECORDS.get("/ANSWER_MS")
    answer.raise_for_status()
    records = answer.json().get("records", {})
    if name not in records:
        raise RecordMissing(name)
    return records[name]


@server.tool()
async def TOOL(text: str) -> str:
    """Looks a record up by its name."""
    try:
        return await fetch_record(text)  #!
    except RecordMissing:
        return f"no record {text}"
