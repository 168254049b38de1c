"""What the servers work on, slow on purpose: HTTP that takes 150 ms, Redis that takes 50 ms a command, large files."""

from __future__ import annotations

import base64
import json
import random
import socketserver
import sqlite3
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HTTP_S = 0.150
REDIS_S = 0.050
WORKBOOK_BYTES = 20_000_000

Answer = tuple[str, bytes]
"""Content type and body."""


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def slow_http(answer: Callable[[str, bytes], Answer | None], delay_s: float = HTTP_S) -> Iterator[str]:
    """The address of a server that gives ``answer(path, body)`` after ``delay_s``; 404 where that is None."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # As sites do; else the body waits 40 ms for the acknowledgement of the head, where a connection is used again.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            time.sleep(delay_s)
            found = answer(self.path, body)
            kind, content = found or ("text/plain", b"nothing here")
            self.send_response(200 if found else 404)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.send_header("x-elastic-product", "Elasticsearch")  # without it that client refuses to talk
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with _serving(server) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def slow_redis(delay_s: float = REDIS_S) -> Iterator[int]:
    """The port of a Redis that knows few commands, each in ``delay_s``; what a client says of itself is free."""
    stored: dict[bytes, bytes] = {b"greeting": b"hello"}

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                self.wfile.write(self.answer(words))

        def answer(self, words: list[bytes]) -> bytes:
            command = words[0].upper()
            if command == b"HELLO":
                return b"%2\r\n" + bulk(b"server") + bulk(b"redis") + bulk(b"proto") + b":3\r\n"
            if command in (b"CLIENT", b"SELECT"):
                return b"+OK\r\n"
            time.sleep(delay_s)
            if command == b"GET":
                return bulk(stored.get(words[1]))
            if command == b"SET":
                stored[words[1]] = words[2]
                return b"+OK\r\n"
            if command == b"SCAN":  # ten pages
                page = int(words[1])
                name = f"key:{page}".encode()
                return b"*2\r\n" + bulk(str((page + 1) % 10).encode()) + b"*1\r\n" + bulk(name)
            return b"+string\r\n" if command == b"TYPE" else b":1\r\n"

    def bulk(value: bytes | None) -> bytes:
        return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = allow_reuse_address = True

    with _serving(Server(("127.0.0.1", 0), Handler)) as port:
        yield port


def large_page() -> bytes:
    """HTML that takes a converter to Markdown long."""
    section = (
        "<h2>Part {0}</h2><p>Some <b>text</b> with <a href='/{0}'>a link</a>.</p><ul><li>one</li><li>two</li></ul>"
    )
    body = "".join(f"<div>{section.format(number)}</div>" for number in range(150))
    return f"<html><head><title>large</title></head><body>{body}</body></html>".encode()


SMALL_PAGE = b"<html><head><title>small</title></head><body><p>A page of one paragraph.</p></body></html>"


def database(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price INTEGER)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((number, 7 * number) for number in range(1000)))
    connection.close()


SLOW_QUERY = (
    "SELECT (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200000)"
    " SELECT sum(i) FROM n) AS total"
)

_OFFICE = "http://schemas.openxmlformats.org"
_RELATIONS = f"{_OFFICE}/package/2006/relationships"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def _package(path: Path, main: str, kind: str, parts: dict[str, str]) -> None:
    """An Office file: its parts, which of them is the main one, and the content types."""
    overrides = f'<Override PartName="/{main}" ContentType="application/vnd.openxmlformats-officedocument.{kind}"/>'
    if "sheet" in kind:
        sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"
        overrides += f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{sheet}"/>'
    types = (
        f'{_HEAD}<Types xmlns="{_OFFICE}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", _relations("officeDocument", main))
        for name, text in parts.items():
            archive.writestr(name, text)


def _relations(kind: str, target: str) -> str:
    name = f"{_OFFICE}/officeDocument/2006/relationships/{kind}"
    return (
        f'{_HEAD}<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" Type="{name}" Target="{target}"/>'
        "</Relationships>"
    )


def workbook(path: Path, size: int) -> None:
    """A workbook of about ``size`` bytes: text that cannot be compressed well, 20 kB a cell."""
    chance = random.Random(1)
    texts = [base64.b64encode(chance.randbytes(15_000)).decode() for _ in range(1 + size // 15_150)]
    rows = "".join(
        f'<row r="{row}"><c r="A{row}" t="inlineStr"><is><t>{text}</t></is></c></row>'
        for row, text in enumerate(texts, 1)
    )
    space = f"{_OFFICE}/spreadsheetml/2006/main"
    _package(
        path,
        "xl/workbook.xml",
        "spreadsheetml.sheet.main+xml",
        {
            "xl/workbook.xml": f'{_HEAD}<workbook xmlns="{space}"'
            f' xmlns:r="{_OFFICE}/officeDocument/2006/relationships">'
            '<sheets><sheet name="Data" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations("worksheet", "worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": f'{_HEAD}<worksheet xmlns="{space}"><sheetData>{rows}</sheetData></worksheet>',
        },
    )


def document(path: Path, paragraphs: int) -> None:
    space = f"{_OFFICE}/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>Paragraph {number}.</w:t></w:r></w:p>" for number in range(paragraphs))
    text = f'{_HEAD}<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
    _package(path, "word/document.xml", "wordprocessingml.document.main+xml", {"word/document.xml": text})


def jira(path: str, body: bytes) -> Answer | None:
    """The few resources of Jira's REST interface that one issue needs."""
    resource = path.split("?")[0].removeprefix("/rest/api/2/")
    if resource == "myself":
        found: object = {"name": "field", "displayName": "Field", "emailAddress": "field@example.org"}
    elif resource == "issueLinkType":
        found = {"issueLinkTypes": [{"id": "1", "name": "Blocks", "inward": "is blocked by", "outward": "blocks"}]}
    elif resource.startswith("issue/"):
        found = {"id": "1", "key": "FLD-1", "self": path, "fields": {"summary": "An issue", "description": "Text."}}
    else:
        found = []
    return "application/json", json.dumps(found).encode()


def elasticsearch(path: str, body: bytes) -> Answer | None:
    if path.startswith("/_cat"):
        found: object = [{"index": "items", "health": "green", "docs.count": "3"}]
    elif path == "/":
        found = {"name": "node", "version": {"number": "8.17.2", "build_flavor": "default"}, "tagline": "You Know"}
    else:
        found = {"cluster_name": "field", "status": "green", "items": {"aliases": {}, "mappings": {}, "settings": {}}}
    return "application/json", json.dumps(found).encode()


def opensearch(path: str, body: bytes) -> Answer | None:
    if path.startswith("/_cat"):
        found: object = [{"index": "items", "health": "green", "docs.count": "3"}]
    elif path == "/":
        found = {"name": "node", "version": {"number": "2.17.0", "distribution": "opensearch"}}
    else:
        found = {"items": {"aliases": {}, "mappings": {}, "settings": {}}}
    return "application/json", json.dumps(found).encode()


def shop(address: str) -> dict[str, object]:
    """An OpenAPI description of a service at ``address`` that finds items, and says whether it lives."""
    text = {"200": {"description": "found", "content": {"application/json": {"schema": {"type": "object"}}}}}
    name = {"name": "name", "in": "query", "schema": {"type": "string"}}
    operations = {"items": "find_items", "health": "health"}
    return {
        "openapi": "3.0.3",
        "info": {"title": "shop", "version": "1"},
        "servers": [{"url": address}],
        "paths": {
            f"/{path}": {"get": {"operationId": operation, "parameters": [name], "responses": text}}
            for path, operation in operations.items()
        },
    }


def item(path: str, body: bytes) -> Answer | None:
    return "application/json", json.dumps({"name": "chair", "price": 7}).encode()


def graphql(parts: int = 0) -> Callable[[str, bytes], Answer | None]:
    """A service that finds an item and says whether it lives; it describes itself to who asks for its schema.

    An item has so many kinds of ``parts``, and each of these has all the others for parts: the more there are, the
    longer is a query that asks for all fields to some depth.
    """

    def kind(name: str, of: str, fields: list[object]) -> dict[str, object]:
        return {"kind": of, "name": name, "fields": fields, "interfaces": []}

    def member(name: str, of: Mapping[str, object], arguments: list[object]) -> dict[str, object]:
        return {"name": name, "type": of, "args": arguments, "isDeprecated": False}

    text, item = {"kind": "SCALAR", "name": "String"}, {"kind": "OBJECT", "name": "Item"}
    argument = {"name": "name", "type": text, "defaultValue": None}
    names = [f"Part{number}" for number in range(parts)]
    members: list[object] = [member(name.lower(), {"kind": "OBJECT", "name": name}, []) for name in names]
    types = [
        kind("Query", "OBJECT", [member("item", item, [argument]), member("health", item, [])]),
        *(kind(name, "OBJECT", [member("name", text, []), *members]) for name in ("Item", *names)),
        *(kind(name, "SCALAR", []) for name in ("String", "Boolean")),
    ]
    schema = {"queryType": {"name": "Query"}, "types": types, "directives": []}

    def answer(path: str, body: bytes) -> Answer | None:
        found: object = {"item": {"name": "chair"}, "health": {"name": "well"}}
        return "application/json", json.dumps({"data": {"__schema": schema} if b"__schema" in body else found}).encode()

    return answer


def clickhouse(path: str, body: bytes) -> Answer | None:
    """Its version as text; one row of one number in its Native format for a query; no settings."""
    asked = body + path.encode()
    if b"version()" in asked:
        return "text/plain", b"24.8.1.1\tUTC\n"
    if b"system.settings" in asked:
        return "text/plain", b""
    if b"SHOW" in asked:
        return "text/plain", b"default\nfield\n"
    return "application/octet-stream", b"\x01\x01\x011\x05UInt8\x01"


def prometheus(path: str, body: bytes) -> Answer | None:
    found = {"status": "success", "data": {"resultType": "vector", "result": []}}
    return "application/json", json.dumps(found).encode()
