"""The server of controlled delays, whose probe can be switched on and off while it serves.

What the probe costs is the difference within one process: two processes of the same program already differ by
more than that.
"""

from __future__ import annotations

from mcp_probe.session import Probe, attach
from mcp_probe.workloads.servers import delays

_probes: list[Probe] = []


@delays.server.tool(structured_output=False)
async def probe(on: bool, record: str | None = None) -> str:
    """Attaches a probe, or detaches it; says how many requests it had seen."""
    if on and not _probes:
        _probes.append(attach(delays.server, telemetry="off", record=record))
    if on or not _probes:
        return "0"
    attached = _probes.pop()
    attached.detach()
    return str(attached.snapshot().requests.count)


if __name__ == "__main__":
    delays.main()
