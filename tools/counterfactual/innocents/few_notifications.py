"""A tool tells its client of three steps.

state: suspended
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: TOOL
numbers: STEP_MS=5..15
load: TOOL callers 2..3 calls 5..7 pause 10..40
"""

import asyncio


@server.tool()
async def TOOL(text: str, ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
        await ctx.info(f"step {step + 1} of 3")
        await asyncio.sleep(STEP_MS / 1000)
    return f"{text}: done"
