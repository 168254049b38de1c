"""Embedded ClickHouse behind the HTTP interface of a ClickHouse server, as far as the Collector's exporter uses it.

Run by the interpreter of ``.envs/chdb``, which holds nothing of ours: ``clickhouse_http.py PORT FOLDER``.
A request's SQL is the parameter ``query``, else the body; with both, the body is the data of an INSERT in Native
format. Answers come in the format that the SQL names, else in Native.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from chdb import session  # type: ignore[import-not-found,unused-ignore]

HELLO = "SELECT displayName(), version(), revision(), timezone()"


class Database:
    """One embedded database; a call at a time, whichever thread calls."""

    def __init__(self, folder: str) -> None:
        self._session = session.Session(folder)
        self._lock = threading.Lock()

    def answer(self, sql: str) -> bytes:
        with self._lock:
            return bytes(self._session.query(sql, "Native").bytes())

    def insert(self, sql: str, data: bytes) -> None:
        statement, _, format_name = sql.rpartition("FORMAT ")
        with tempfile.NamedTemporaryFile(suffix=".native") as file:
            file.write(data)
            file.flush()
            self.answer(f"{statement} FROM INFILE '{file.name}' FORMAT {format_name}")

    def hello(self) -> bytes:
        """What a client asks first, with revision 0: from then on it reads plain Native, which is all chdb writes.

        This one answer it reads in the layout of its own, newer revision: block info, and a byte after each type.
        """
        version, zone = self.answer("SELECT version(), timezone() FORMAT TSV").decode().strip().split("\t")
        columns = [
            ("displayName()", "String", text_of("embedded")),
            ("version()", "String", text_of(version)),
            ("revision()", "UInt32", struct.pack("<I", 0)),
            ("timezone()", "String", text_of(zone)),
        ]
        head = b"\x01\x00\x02" + struct.pack("<i", -1) + b"\x00" + bytes([len(columns), 1])
        return head + b"".join(text_of(name) + text_of(kind) + b"\x00" + data for name, kind, data in columns)


def text_of(value: str) -> bytes:
    """A string as Native has it; shorter than 128 bytes."""
    data = value.encode()
    return bytes([len(data)]) + data


class Handler(BaseHTTPRequestHandler):
    """One HTTP connection of a ClickHouse client."""

    protocol_version = "HTTP/1.1"
    database: Database

    def do_GET(self) -> None:
        self._reply(200, b"Ok.\n")

    def do_POST(self) -> None:
        body = self._body()
        query = parse_qs(urlsplit(self.path).query).get("query")
        try:
            if query:
                self.database.insert(query[0], body)
                answer = b""
            else:
                sql = body.decode()
                answer = self.database.hello() if sql == HELLO else self.database.answer(sql)
        except Exception as exc:  # noqa: BLE001 - whatever the database says goes to the one who asked
            self._reply(500, str(exc).encode())
        else:
            self._reply(200, answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, file=sys.stderr)


def main() -> None:
    """Serves on loopback until killed."""
    port, folder = int(sys.argv[1]), sys.argv[2]
    Handler.database = Database(folder)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
