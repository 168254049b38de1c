"""The documents' comparisons on a user's own server: operations, fan-out, a quick call beside a slow one, the knee.

A tool is called only if the server declares it read-only or the user says so. A command is started under the probe,
which says why; how many calls to have in flight is measured without it, since that is how the server will run.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.machine import serving
from mcp_probe.workloads.bench.own.at_once import fan_out, pipelining
from mcp_probe.workloads.bench.own.elsewhere import sessions, transports
from mcp_probe.workloads.bench.own.latencies import beside, latencies
from mcp_probe.workloads.bench.own.operations import OwnServer, offer_of
from mcp_probe.workloads.bench.own.sheet import Reasons, Sheet
from mcp_probe.workloads.bench.own.sweep import sweep, under_the_probe
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.load.connecting import connect
from mcp_probe.workloads.load.peer import Peer

FROM_OUTSIDE = "A server at a URL is seen from outside: what limits it is told of one that `--server` starts."


async def compare(own: OwnServer, bench: Bench) -> Outcome:
    """Runs it all; rows and claims go to ``bench`` as they are found, the probe's reasons when the server has ended.

    Raises:
        LaunchError: the server does not start, or hangs.
        OptionError: a named tool does not exist, or fails.
    """
    reasons = Reasons()
    sheet = Sheet(bench, reasons)
    try:
        async with _served(own, bench, reasons) as peer:
            bench.ours = serving(own.target.url)
            await _on_one_connection(sheet, peer, own)
            if not own.is_probed:
                await sweep(sheet, peer)
        if own.is_probed:
            await _swept_bare(sheet, own)
        await sessions(sheet, own)
        if own.over_http is not None:
            await transports(sheet, own, own.over_http)
    finally:
        missing = FROM_OUTSIDE if own.target.url else reasons.missing if bench.has_findings else ""
        if missing:
            bench.note(missing)
    return bench.outcome()


@asynccontextmanager
async def _served(own: OwnServer, bench: Bench, reasons: Reasons) -> AsyncIterator[Peer]:
    """The server, under the probe where it can be; afterwards ``reasons`` are there, however it ended."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-own-") as folder:
        recording = Path(folder, "recording.jsonl")
        target = own.target.under_probe(recording) if own.is_probed else own.target
        bench.step("starting the server" if target.command else "connecting")
        try:
            async with connect(target, say=bench.step) as peer:
                yield peer
        finally:
            if own.is_probed:
                reasons.read(recording)


async def _swept_bare(sheet: Sheet, own: OwnServer) -> None:
    """The sweep of a server without the probe, then each of its levels once more under it, for the reasons.

    One after the other: two of a server may not be able to open the same file or port.
    """
    if sheet.main is None:
        return
    sheet.bench.step("starting the server without the probe")
    async with connect(own.target, say=sheet.bench.step) as peer:
        swept = await sweep(sheet, peer)
    if swept is not None:
        async with _served(own, sheet.bench, swept.reasons) as peer:
            await under_the_probe(swept, peer)


async def _on_one_connection(sheet: Sheet, peer: Peer, own: OwnServer) -> None:
    offer = await offer_of(peer, own)
    for note in offer.notes:
        sheet.bench.note(note)
    await latencies(sheet, peer, own, offer)
    await pipelining(sheet, peer)
    await fan_out(sheet, peer)
    await beside(sheet, peer)
