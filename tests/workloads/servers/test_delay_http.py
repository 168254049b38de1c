"""The local HTTP server: what it counts is the truth that client figures are held against."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mcp_probe.workloads.servers.delay_http import HOST, DelayServer, answer_bytes, delay_server

REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def connection_to(server: DelayServer) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, server.port), timeout=60) as connection:
        yield connection


def answers(connection: socket.socket, count: int) -> list[bytes]:
    """Bodies of the next ``count`` answers, in order."""
    stream = connection.makefile("rb")
    bodies = []
    for _ in range(count):
        length = 0
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        bodies.append(stream.read(length))
    return bodies


def seen_in_flight(server: DelayServer, wanted: int) -> int:
    """Asks until so many requests are in flight; bounded by the test's own limit."""
    while (peak := server.seen(reset=False).in_flight_peak) < wanted:
        time.sleep(0.005)
    return peak


def test_it_counts_requests_connections_and_bytes_but_not_who_asks_for_the_counts() -> None:
    with delay_server(0) as server:
        server.seen()
        sent = received = 0
        for number in range(3):
            with connection_to(server) as connection:
                line = REQUEST % (b"/anything/%d?query=abc" % number)
                connection.sendall(line)
                (body,) = answers(connection, 1)
                assert len(body) == answer_bytes(f"/anything/{number}?query=abc")
                sent, received = sent + len(line), received + len(body)
        found = server.seen()
    assert (found.requests, found.connections) == (3, 3)
    assert found.received_bytes == sent
    assert found.sent_bytes > received  # heads besides
    assert found.in_flight_peak == 1


def test_all_requests_that_wait_at_once_are_in_flight() -> None:
    with delay_server(60_000) as server, ExitStack() as stack:
        server.seen()
        for _ in range(7):
            stack.enter_context(connection_to(server)).sendall(REQUEST % b"/health")
        assert seen_in_flight(server, 7) == 7
        found = server.seen()
        assert (found.requests, found.connections, found.connections_peak) == (7, 7, 7)
        # After a reset levels stay what they are, and sums begin anew.
        again = server.seen()
        assert (again.requests, again.in_flight_peak, again.connections_peak) == (0, 7, 7)


def test_a_connection_that_is_gone_takes_its_requests_with_it() -> None:
    with delay_server(60_000) as server:
        with connection_to(server) as connection:
            connection.sendall(REQUEST % b"/health")
            seen_in_flight(server, 1)
        while server.seen().in_flight_peak:
            time.sleep(0.005)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    targets = [b"/anything/%d?query=x" % number for number in range(5)]
    with delay_server(1) as server, connection_to(server) as connection:
        connection.sendall(b"".join(REQUEST % target for target in targets))
        bodies = answers(connection, len(targets))
    assert [target in body for target, body in zip(targets, bodies, strict=True)] == [True] * 5


def test_a_request_in_pieces_is_one_request() -> None:
    with delay_server(0) as server, connection_to(server) as connection:
        server.seen()
        for byte in REQUEST % b"/health":
            connection.sendall(bytes([byte]))
        assert answers(connection, 1) == [b'{"status":"ok"}']
        assert server.seen().requests == 1


def test_no_answer_comes_before_its_delay() -> None:
    with delay_server(40) as server:
        client = http.client.HTTPConnection(HOST, server.port, timeout=60)
        client.connect()
        began = time.monotonic()
        client.request("GET", "/health")
        client.getresponse().read()
        client.close()
    # A loop's timers may be early by the clock's resolution.
    assert time.monotonic() - began >= 0.039


def test_it_ends_with_the_one_who_started_it() -> None:
    with delay_server(60_000) as server, connection_to(server) as connection:
        connection.sendall(REQUEST % b"/health")
        seen_in_flight(server, 1)
    assert server.process.returncode is not None
