"""A backend on loopback that answers as late as it is told, and notes itself when which request came."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

CHUNK = b"x" * 1000


@dataclass
class Seen:
    """One request as the backend saw it."""

    target: str
    connection: int
    came_ns: int
    first_ns: int = 0  # before its first byte was sent
    last_ns: int = 0  # before its last part was sent
    answered_ns: int = 0


@dataclass
class Backend:
    """Delays in seconds; ``chunks`` parts of a body, each after ``between``; ``one_by_one``: serves one at a time."""

    first_byte: float = 0.0
    handshake: float = 0.0
    between: float = 0.0
    chunks: int = 1
    chunked: bool = False
    moved_to: str = ""
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    secured_ns: dict[int, int] = field(default_factory=dict)  # connection: when its handshake began
    tls: ssl.SSLContext | None = None
    one_by_one: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        """As the probe names it."""
        scheme, host = ("http", "127.0.0.1") if self.tls is None else ("https", "localhost")
        return f"{scheme}://{host}:{self.port}"

    def of(self, target: str) -> Seen:
        """The one request for ``target``."""
        [one] = [one for one in self.seen if one.target == target]
        return one

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve_one, args=(connection, self.connections), daemon=True).start()

    def _serve_one(self, raw: socket.socket, number: int) -> None:
        with suppress(OSError), raw:
            time.sleep(self.handshake)
            self.secured_ns[number] = time.monotonic_ns()
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = raw if self.tls is None else self.tls.wrap_socket(raw, server_side=True)
            with connection:
                while self._answer(connection, number):
                    pass

    def _answer(self, connection: socket.socket, number: int) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return False
            data += part
        one = Seen(data.split(b" ", 2)[1].decode(), number, time.monotonic_ns())
        self.seen.append(one)
        with self.turn if self.one_by_one else nullcontext():
            time.sleep(self.first_byte)
        one.first_ns = one.last_ns = time.monotonic_ns()
        if self.moved_to:
            connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {self.moved_to}\r\nContent-Length: 0\r\n\r\n".encode())
            return True
        length = f"Content-Length: {self.chunks * len(CHUNK)}" if not self.chunked else "Transfer-Encoding: chunked"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        for _ in range(self.chunks):
            time.sleep(self.between)
            one.last_ns = time.monotonic_ns()
            connection.sendall(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK) if self.chunked else CHUNK)
        if self.chunked:
            connection.sendall(b"0\r\n\r\n")
        one.answered_ns = time.monotonic_ns()
        return True


@contextmanager
def serving(tls: ssl.SSLContext | None = None, **options: float | str | bool) -> Iterator[Backend]:
    """A backend that runs on threads of its own."""
    backend = Backend(**options, tls=tls)  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        backend.port = listener.getsockname()[1]
        thread = threading.Thread(target=backend.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield backend
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
