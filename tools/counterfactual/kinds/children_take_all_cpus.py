"""A tool starts a program for every file at once, and these processes leave no CPU to the server.

cites: jswest/bartleby#211, repowise-dev/repowise#1410, morluto/leantoken#163
state: no cpu
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CHECK LOOK
numbers: FILES=18..24 ROUNDS=50000..70000
load: CHECK callers 1 calls 2
load: LOOK callers 5..6 calls 15..20
mend: compute-less
thing: check_files or child processes
holder: CHECK or check_files
"""

import asyncio
import hashlib
import sys

CHECKER = """
import hashlib, sys
for name in sys.argv[2:]:
    digest = name.encode()
    for _ in range(int(sys.argv[1])):
        digest = hashlib.sha256(digest).digest()
    print(name, digest.hex()[:8])
"""


async def check_files(names: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHECKER,
        str(ROUNDS),
        *names,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode()


@server.tool()
async def CHECK(text: str) -> str:
    names = [f"{text}/{number}.py" for number in range(FILES)]
    #: sick
    reports = await asyncio.gather(*(check_files([name]) for name in names))  #!
    #: mended
    reports = [await check_files(names)]
    #: end
    return hashlib.sha256("".join(reports).encode()).hexdigest()


@server.tool()
async def LOOK(text: str) -> str:
    return " ".join(sorted(text.split()))
