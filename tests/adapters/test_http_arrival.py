"""When requests arrive over HTTP, against a client that notes on the same clock when it wrote them.

A tool holds the loop of a real server for half a second. Meanwhile requests come: on a new connection, on one that is
kept alive, in two pieces, two at once. The probe must say when, whatever the server got round to.
"""

from __future__ import annotations

import datetime
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest
from mcp.client import Client as McpClient

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.quality import total_quality
from mcp_probe.model import RequestRecord, Summary
from mcp_probe.record.file import read_recording
from tests.adapters.asgi_client import META, message
from tests.adapters.http_truth_server import Served
from tests.kept import unavailable
from tests.ports import free_port

MS = 1_000_000
BLOCK_MS = 500
LAG_MS = 120
"""From one piece of a request to the next."""
ABOUT_MS = 10
"""How far an arrival that counts as known may lie off: a tick of the kernel's clock, and the client's own delay."""
ROOT = Path(__file__).resolve().parent.parent.parent

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a segment came")

KNOWN = ("prompt", "before_accept", "keep_alive", "two_pieces")
PIPELINED = ("first_of_two", "second_of_two", "first_then", "then_second")
NAMES = (*KNOWN, *PIPELINED)


Span = tuple[int, int]


class Connection:
    """One connection of a raw client."""

    def __init__(self, bind: str, context: ssl.SSLContext | None = None) -> None:
        kind, _, path = bind.partition(":")
        if kind == "unix":
            with ExitStack() as undo:
                self.socket: Any = undo.enter_context(socket.socket(socket.AF_UNIX))
                self.socket.connect(path)
                undo.pop_all()
        else:
            host, _, port = bind.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(60)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._unread = b""

    def send(self, data: bytes) -> Span:
        """Write ``data``; when, in ns."""
        began = time.monotonic_ns()
        self.socket.sendall(data)
        return began, time.monotonic_ns()

    def answer(self) -> int:
        """Read one answer; when it was there, in ns."""
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        (length,) = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        while len(rest) < length:
            self._more()
            rest = self._unread.partition(b"\r\n\r\n")[2]
        self._unread = rest[length:]
        return time.monotonic_ns()

    def _more(self) -> None:
        got = self.socket.recv(65_536)
        assert got, "the server has closed the connection"
        self._unread += got

    def close(self) -> None:
        self.socket.close()


def post(tool: str, **arguments: Any) -> bytes:
    """A whole HTTP request that calls ``tool``."""
    body = message(1, "tools/call", name=tool, arguments=arguments, _meta=META)
    head = (
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
        f"mcp-method: tools/call\r\nmcp-name: {tool}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def halves(request: bytes) -> tuple[bytes, bytes]:
    """Headers and the beginning of the body; the rest."""
    cut = request.index(b"\r\n\r\n") + 40
    return request[:cut], request[cut:]


class Client:
    """Sends requests while the loop is blocked, and keeps when each one's last byte was written and answered."""

    def __init__(self, bind: str, context: ssl.SSLContext | None) -> None:
        self._bind = bind
        self._context = context
        self._open: list[Connection] = []
        self.sent: dict[str, Span] = {}
        self.answered: dict[str, int] = {}

    def connect(self) -> Connection:
        connection = Connection(self._bind, self._context)
        self._open.append(connection)
        return connection

    def wait_for_server(self) -> None:
        for _ in range(200):
            try:
                self.used()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("nobody listens")

    def used(self) -> Connection:
        """A connection that has had a request."""
        connection = self.connect()
        connection.send(post("quick"))
        connection.answer()
        return connection

    @contextmanager
    def block(self, lag_ms: float = LAG_MS) -> Iterator[None]:
        """The loop is blocked; ``lag_ms`` of it have passed."""
        blocker = self.used()
        blocker.send(post("block", ms=BLOCK_MS))
        time.sleep(lag_ms / 1000)
        yield
        blocker.answer()

    def play(self) -> None:
        """Every scene that any server can serve."""
        one = self.used()
        time.sleep(0.1)
        self.sent["prompt"] = one.send(post("prompt"))
        self.answered["prompt"] = one.answer()
        with self.block():
            new = self.connect()
            self.sent["before_accept"] = new.send(post("before_accept"))
        self.answered["before_accept"] = new.answer()
        kept = self.used()
        self.behind_a_block(kept)
        self.pipelined(kept)

    def pipelined(self, kept: Connection) -> None:
        """Two requests that do not wait for each other's answer: in one piece, and in two."""
        with self.block():
            self.sent["first_of_two"] = self.sent["second_of_two"] = kept.send(
                post("first_of_two") + post("second_of_two")
            )
        self.answered["first_of_two"] = kept.answer()
        self.answered["second_of_two"] = kept.answer()
        with self.block():
            self.sent["first_then"] = kept.send(post("first_then"))
            time.sleep(LAG_MS / 1000)
            self.sent["then_second"] = kept.send(post("then_second"))
        self.answered["first_then"] = kept.answer()
        self.answered["then_second"] = kept.answer()

    def behind_a_block(self, kept: Connection) -> None:
        """A request in one piece, and one in two, on a connection that is kept alive."""
        with self.block():
            self.sent["keep_alive"] = kept.send(post("keep_alive"))
        self.answered["keep_alive"] = kept.answer()
        first, second = halves(post("two_pieces"))
        with self.block():
            kept.send(first)
            time.sleep(LAG_MS / 1000)
            self.sent["two_pieces"] = kept.send(second)
        self.answered["two_pieces"] = kept.answer()

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class Seen:
    """What the client knows, and what the server recorded."""

    def __init__(self, client: Client, recording: Path) -> None:
        frames = list(read_recording(recording))
        self.client = client
        self.records = {each.name: each for each in frames if isinstance(each, RequestRecord)}
        fold = Fold()
        for frame in frames:
            fold.add(frame)
        self.summary: Summary = fold.summary()

    def arrived(self, name: str) -> tuple[int, int]:
        """The bounds of its arrival, in ns."""
        record = self.records[name]
        earliest = record.arrival_ns
        for field, tag, low, high in record.quality:
            if field == "queue_transport":
                assert tag == "bounded" and low is not None and high is not None, f"{name} has no earliest arrival"
                earliest -= high - low
        return earliest, record.arrival_ns

    def off_ms(self, name: str) -> tuple[float, float]:
        """How much earlier and later than its last byte was written it may have come."""
        earliest, latest = self.arrived(name)
        began, ended = self.client.sent[name]
        return least(began - earliest, ended - earliest), least(latest - ended, latest - began)

    def waited_ms(self, name: str) -> float:
        """How long the client waited for its answer."""
        return (self.client.answered[name] - self.client.sent[name][1]) / MS


def least(low: int, high: int) -> float:
    """What is closest to 0 between the two, in ms: the client may lose its CPU while it writes."""
    return (low if low > 0 else min(high, 0)) / MS


@contextmanager
def running(served: Served, context: ssl.SSLContext | None = None) -> Iterator[Client]:
    """A client of a server that is up."""
    with subprocess.Popen(served.command(), stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"listening\n"
            client = Client(served.bind, context)
            try:
                client.wait_for_server()
                yield client
            finally:
                client.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


SERVERS = [
    ("httptools", "asyncio"),
    ("h11", "asyncio"),
    ("httptools", "uvloop"),
    ("hypercorn", "asyncio"),
    ("hypercorn", "trio"),
]


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """All scenes, on one server."""
    server, loop = request.param
    pytest.importorskip(server)
    recording = tmp_path_factory.mktemp("arrival") / "recording"
    with running(Served(server, loop, f"127.0.0.1:{free_port()}", str(recording), NAMES)) as client:
        client.play()
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
    early, late = seen.off_ms(name)
    assert early > -ABOUT_MS
    assert late > -ABOUT_MS
    if name != "first_of_two":  # came with the other one in a segment, and was served first
        assert early + late > LAG_MS - ABOUT_MS, "nobody can know when it came, and the probe says so"


@linux
@pytest.mark.parametrize("name", [name for name in KNOWN if name != "prompt"])
def test_the_wait_behind_a_block_has_its_blocker(seen: Seen, name: str) -> None:
    (row,) = [row for row in seen.summary.blocked_by if row.victim == name and row.blocker == "block"]
    waited = seen.waited_ms(name)
    assert 0.9 * waited < row.lo_ms + ABOUT_MS
    assert row.lo_ms <= row.hi_ms < waited + ABOUT_MS


@linux
@pytest.mark.parametrize("name", [name for name in KNOWN if name != "prompt"])
def test_the_total_holds_what_the_client_waited(seen: Seen, name: str) -> None:
    (row,) = [row for row in seen.summary.operations if row.name == name]
    waited = seen.waited_ms(name)
    quality = row.quality["total_ms_p50"]
    assert quality.tag == "bounded" and quality.lo is not None and quality.hi is not None
    assert quality.lo - ABOUT_MS < waited < quality.hi + ABOUT_MS
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
    for name in ("keep_alive", "two_pieces"):
        early, late = seen.off_ms(name)
        assert -ABOUT_MS < late < ABOUT_MS
        assert early > -ABOUT_MS
        if loop != "uvloop" or name == "keep_alive":  # uvloop does not say whether a record is incomplete
            assert early < ABOUT_MS


@pytest.mark.parametrize(("server", "loop"), [("httptools", "asyncio"), ("h11", "uvloop"), ("hypercorn", "asyncio")])
def test_arrival_over_a_unix_socket_is_bounded(server: str, loop: str, tmp_path: Path) -> None:
    pytest.importorskip(server)
    seen = keep_alive_over(Served(server, loop, f"unix:{tmp_path / 'socket'}", "", NAMES), tmp_path)
    for name in ("keep_alive", "two_pieces"):
        early, late = seen.off_ms(name)
        assert early > -ABOUT_MS
        assert late > BLOCK_MS - 3 * LAG_MS, "as far as is known it may have come just before it was read"
    assert unavailable(seen.records["new"]) == {"queue_transport"}, "nothing was known of its connection"


@linux
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_the_sdks_clients_waited_behind_a_block_is_what_the_summary_says(mode: Any, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    port = free_port()
    with running(Served("h11", "asyncio", f"127.0.0.1:{port}", str(recording), ())) as client:
        took = await calls_behind_blocks(f"http://127.0.0.1:{port}/mcp", mode, rounds=5, victims=4)
    seen = Seen(client, recording)
    (row,) = [row for row in seen.summary.operations if row.name == "hold"]
    assert row.count == len(took), "the probe counts what was sent"
    for name, truth in (("p50", median(took)), ("p95", sorted(took)[round(0.95 * len(took)) - 1])):
        quality = total_quality(row, name)  # exact where both bounds are of one bucket
        least, most = (quality.lo, quality.hi) if quality.tag == "bounded" else (getattr(row.total_ms, name),) * 2
        assert quality.tag in ("exact", "bounded") and least is not None and most is not None
        assert 0.9 * truth < most < 1.1 * truth
        assert most - least < max(20, 0.1 * truth)
    (blame,) = [each for each in seen.summary.blocked_by if each.victim == "hold" and each.blocker == "block"]
    assert 0.85 * sum(took) < blame.lo_ms <= blame.hi_ms < 1.05 * sum(took)


async def calls_behind_blocks(url: str, mode: Any, rounds: int, victims: int) -> list[float]:
    """How long each victim waited for a call of ``hold``, made while ``block`` holds the loop, in ms."""
    took: list[float] = []

    async def suffer(mcp: McpClient, number: int) -> None:
        await anyio.sleep(0.1 + 0.04 * number)
        began = time.monotonic_ns()
        await mcp.call_tool("hold", {"ms": 0})
        took.append((time.monotonic_ns() - began) / MS)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(McpClient(url, mode=mode)) for _ in range(victims + 1)]
        for mcp in clients:
            await mcp.list_tools()
            await mcp.call_tool("quick")
        for _ in range(rounds):
            async with anyio.create_task_group() as group:
                group.start_soon(clients[0].call_tool, "block", {"ms": BLOCK_MS})
                for number, mcp in enumerate(clients[1:]):
                    group.start_soon(suffer, mcp, number)
    return took


def keep_alive_over(served: Served, folder: Path, context: ssl.SSLContext | None = None) -> Seen:
    """The first request of a connection, and later ones behind a block: whole, and in two pieces."""
    recording = folder / "recording"
    with running(replace(served, recording=str(recording), tools=("new", *served.tools)), context) as client:
        kept = client.connect()
        kept.send(post("new"))
        kept.answer()
        client.behind_a_block(kept)
    return Seen(client, recording)


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
