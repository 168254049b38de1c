"""When requests arrive over HTTP, against a client that notes on the same clock when it wrote them.

A tool holds the loop of a real server for half a second. Meanwhile requests come: on a new connection, on one that is
kept alive, in two pieces, two at once. The probe must say when, whatever the server got round to.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest
from mcp.client import Client as McpClient

from mcp_probe.aggregate.quality import total_quality
from tests.adapters.http_scenes import ABOUT_MS, BLOCK_MS, KNOWN, LAG_MS, MS, NAMES, PIPELINED, Seen, post, running
from tests.adapters.http_truth_server import Served
from tests.kept import unavailable
from tests.ports import free_port

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a segment came")

SERVERS = [
    ("httptools", "asyncio"),
    ("h11", "asyncio"),
    ("httptools", "uvloop"),
    ("h11", "uvloop"),
    ("hypercorn", "asyncio"),
    ("hypercorn", "uvloop"),
    ("hypercorn", "trio"),
]


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """All scenes, on one server."""
    server, loop = request.param
    pytest.importorskip(server)
    for _ in range(3):
        recording = tmp_path_factory.mktemp("arrival") / "recording"
        with running(Served(server, loop, f"127.0.0.1:{free_port()}", str(recording), NAMES)) as client:
            client.play()
        if client.was_in_time():
            break
    return Seen(client, recording)


@linux
@pytest.mark.parametrize("name", KNOWN)
def test_request_that_waited_behind_a_block_arrived_when_its_last_byte_was_written(seen: Seen, name: str) -> None:
    early, late = seen.off_ms(name)
    assert -ABOUT_MS < early < ABOUT_MS
    assert -ABOUT_MS < late < ABOUT_MS


@linux
@pytest.mark.parametrize("name", PIPELINED)
def test_pipelined_request_arrived_within_its_bounds(seen: Seen, name: str) -> None:
    assert_is_bounded(seen, name)
    if name == "second_of_two":  # it may have come at any time since the loop last looked, before the block
        assert seen.arrived(name)[0] <= seen.client.blocked[name][0]
    elif name != "first_of_two":  # came with the other one in a segment, and was served first
        assert sum(seen.off_ms(name)) > LAG_MS - ABOUT_MS, "nobody can know when it came, and the probe says so"


@linux
@pytest.mark.parametrize("name", [name for name in KNOWN if name != "prompt"])
def test_the_wait_behind_a_block_has_its_blocker(seen: Seen, name: str) -> None:
    (row,) = [row for row in seen.summary.blocked_by if row.victim == name and row.blocker == "block"]
    _, most = seen.waited_ms(name)
    assert seen.held_ms(name) > 0, "this client was too late"
    assert 0.9 * seen.held_ms(name) < row.lo_ms + ABOUT_MS
    assert row.lo_ms <= row.hi_ms < most + ABOUT_MS


@linux
@pytest.mark.parametrize("name", [name for name in KNOWN if name != "prompt"])
def test_the_total_holds_what_the_client_waited(seen: Seen, name: str) -> None:
    (row,) = [row for row in seen.summary.operations if row.name == name]
    least, most = seen.waited_ms(name)
    quality = row.quality["total_ms_p50"]
    assert quality.tag == "bounded" and quality.lo is not None and quality.hi is not None
    assert quality.lo - ABOUT_MS < most
    assert least < quality.hi + ABOUT_MS
    assert quality.hi - quality.lo < 20


@linux
@pytest.mark.parametrize("server", ["httptools", "hypercorn"])
def test_arrival_over_ipv6_is_known(server: str, tmp_path: Path) -> None:
    pytest.importorskip(server)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    early, late = keep_alive_over(Served(server, "asyncio", f"[::1]:{free_port()}", "", NAMES), tmp_path).off_ms(
        "keep_alive"
    )
    assert -ABOUT_MS < early < ABOUT_MS
    assert -ABOUT_MS < late < ABOUT_MS


@linux
@pytest.mark.parametrize(("server", "loop"), [("httptools", "asyncio"), ("httptools", "uvloop"), ("hypercorn", "trio")])
def test_arrival_over_tls_is_known(server: str, loop: str, tmp_path: Path) -> None:
    pytest.importorskip(server)
    certificate, key, context = self_signed(tmp_path)
    served = Served(server, loop, f"127.0.0.1:{free_port()}", "", NAMES, certificate, key)
    seen = keep_alive_over(served, tmp_path, context)
    for name in ("keep_alive", "long", "two_pieces"):
        early, late = seen.off_ms(name)
        assert -ABOUT_MS < late < ABOUT_MS
        assert early > -ABOUT_MS
        if loop != "uvloop" or name == "keep_alive":  # uvloop does not say whether a record is incomplete
            assert early < ABOUT_MS
    for name in PIPELINED:
        assert_is_bounded(seen, name)


@pytest.mark.parametrize(("server", "loop"), [("httptools", "asyncio"), ("h11", "uvloop"), ("hypercorn", "asyncio")])
def test_arrival_over_a_unix_socket_is_bounded(server: str, loop: str, tmp_path: Path) -> None:
    pytest.importorskip(server)
    seen = keep_alive_over(Served(server, loop, f"unix:{tmp_path / 'socket'}", "", NAMES), tmp_path)
    for name in ("keep_alive", "long", "two_pieces", *PIPELINED):
        assert_is_bounded(seen, name)
        latest, ended = seen.arrived(name)[1], seen.client.blocked[name][1]
        assert latest >= ended - ABOUT_MS * MS, "as far as is known it came just before it was read"
    assert unavailable(seen.records["new"]) == {"queue_transport"}, "nothing was known of its connection"


@linux
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_the_sdks_clients_waited_behind_a_block_is_what_the_summary_says(mode: Any, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    port = free_port()
    with running(Served("h11", "asyncio", f"127.0.0.1:{port}", str(recording), ())) as client:
        calls = await calls_behind_blocks(f"http://127.0.0.1:{port}/mcp", mode, rounds=5, victims=4)
    seen = Seen(client, recording)
    took = [call.took_ms for call in calls]
    (row,) = [row for row in seen.summary.operations if row.name == "hold"]
    assert row.count == len(took), "the probe counts what was sent"
    surely = sorted(max(0.0, call.held_up_ms - call.quiet_ms) for call in calls)
    for name, q in (("p50", 0.5), ("p95", 0.95)):
        place = ceil(q * len(took)) - 1  # of the nearest rank, as in the summary
        truth = sorted(took)[place]
        quality = total_quality(row, name)  # exact where both bounds are of one bucket
        least, most = (quality.lo, quality.hi) if quality.tag == "bounded" else (getattr(row.total_ms, name),) * 2
        assert quality.tag in ("exact", "bounded") and least is not None and most is not None
        assert 0.9 * surely[place] < most < 1.1 * truth
        assert most - least < max(20, 0.1 * truth)
    (blame,) = [each for each in seen.summary.blocked_by if each.victim == "hold" and each.blocker == "block"]
    held_up = sum(call.held_up_ms for call in calls)
    assert 0.9 * (held_up - sum(call.quiet_ms for call in calls)) < blame.lo_ms <= blame.hi_ms < 1.05 * held_up


@dataclass
class Call:
    """A call made while another one blocks the loop: instants in ns, and what a call takes on a quiet server."""

    began: int
    answered: int
    quiet_ms: float
    unblocked: int = 0  # the other one said that it no longer did

    @property
    def took_ms(self) -> float:
        return (self.answered - self.began) / MS

    @property
    def held_up_ms(self) -> float:
        """What it waited for the blocker: it ends with the block, whenever the client gets round to the answer."""
        return max(0, min(self.answered, self.unblocked) - self.began) / MS


async def calls_behind_blocks(url: str, mode: Any, rounds: int, victims: int) -> list[Call]:
    """Calls of ``hold``, made while ``block`` holds the loop."""
    calls: list[Call] = []

    async def suffer(mcp: McpClient, number: int, quiet_ms: float, suffered: list[Call]) -> None:
        await anyio.sleep(0.1 + 0.04 * number)
        began = time.monotonic_ns()
        await mcp.call_tool("hold", {"ms": 0})
        suffered.append(Call(began, time.monotonic_ns(), quiet_ms))

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(McpClient(url, mode=mode)) for _ in range(victims + 1)]
        for mcp in clients:
            await mcp.list_tools()
            await mcp.call_tool("quick")
        quiet_ms = median([await call_quick(mcp) for mcp in clients for _ in range(3)])
        for _ in range(rounds):
            suffered: list[Call] = []
            async with anyio.create_task_group() as group:
                for number, mcp in enumerate(clients[1:]):
                    group.start_soon(suffer, mcp, number, quiet_ms, suffered)
                said: Any = await clients[0].call_tool("block", {"ms": BLOCK_MS})
            for one in suffered:
                one.unblocked = int(said.content[0].text)
            calls += suffered
    return calls


async def call_quick(mcp: McpClient) -> float:
    """How long a call takes that nobody holds up, in ms."""
    began = time.monotonic_ns()
    await mcp.call_tool("quick")
    return (time.monotonic_ns() - began) / MS


def keep_alive_over(served: Served, folder: Path, context: ssl.SSLContext | None = None) -> Seen:
    """The first request of a connection, and later ones behind a block: whole, and in two pieces."""
    recording = folder / "recording"
    with running(replace(served, recording=str(recording), tools=("new", *served.tools)), context) as client:
        kept = client.connect()
        kept.send(post("new"))
        kept.answer()
        client.behind_a_block(kept)
        client.pipelined(kept)
    return Seen(client, recording)


def assert_is_bounded(seen: Seen, name: str) -> None:
    """It came between its bounds."""
    early, late = seen.off_ms(name)
    assert early > -ABOUT_MS
    assert late > -ABOUT_MS


def self_signed(folder: Path) -> tuple[str, str, ssl.SSLContext]:
    """(certificate, key, what a client of it needs) for ``localhost``."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.timezone.utc)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    unencrypted = serialization.NoEncryption()
    pkcs8 = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, unencrypted))
    return str(certificate), str(private), ssl.create_default_context(cafile=str(certificate))


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(of a server for ``localhost``, of a client that trusts it)."""
    certificate, key, trusting = self_signed(folder)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    return serving, trusting
