"""The documents' comparisons on a user's own server: operations, fan-out, a quick call beside a slow one, the knee.

A tool is called only if the server declares it read-only or the user says so. A command is started under the probe,
which says why.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.machine import serving
from mcp_probe.workloads.bench.own.at_once import fan_out, pipelining
from mcp_probe.workloads.bench.own.elsewhere import sessions, transports
from mcp_probe.workloads.bench.own.latencies import beside, latencies
from mcp_probe.workloads.bench.own.operations import OwnServer, offer_of
from mcp_probe.workloads.bench.own.sheet import Reasons, Sheet
from mcp_probe.workloads.bench.own.sweep import sweep
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
    with tempfile.TemporaryDirectory(prefix="mcp-probe-own-") as folder:
        recording = Path(folder, "recording.jsonl")
        target = own.target.under_probe(recording) if own.probe and own.target.command else own.target
        try:
            bench.step("starting the server" if target.command else "connecting")
            async with connect(target, say=bench.step) as peer:
                bench.ours = serving(target.url)
                await _on_one_connection(sheet, peer, own)
            await sessions(sheet, own)
            if own.over_http is not None:
                await transports(sheet, own, own.over_http)
        finally:
            missing = FROM_OUTSIDE if target.url else ""
            if target is not own.target and sheet.measured:
                missing = reasons.read(recording)
            sheet.publish()
            if missing:
                bench.note(missing)
    return bench.outcome()


async def _on_one_connection(sheet: Sheet, peer: Peer, own: OwnServer) -> None:
    offer = await offer_of(peer, own)
    for note in offer.notes:
        sheet.note(note)
    await latencies(sheet, peer, own, offer)
    await pipelining(sheet, peer)
    await fan_out(sheet, peer)
    await beside(sheet, peer)
    await sweep(sheet, peer)
