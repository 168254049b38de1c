"""What no proper client would send, made at random; and whether a probed server answers it as a bare one does."""

# ruff: noqa: E501 - tables of values, several on a line

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Literal

from tests.harm.programs.odd_input import VERSION
from tests.harm.running import ROOT, How, environment

Transport = Literal["stdio", "http", "sse"]
Case = list[list[bytes]]
"""Connections, each as the segments that are sent on it; over stdio there is one."""

TRIES = 4
KILOBYTE, MEGABYTE = 1 << 10, 1 << 20
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07",
    "\u202egpj.exe",
    "a\nb\rc\td",
    "\x00\x7f\x9b31m",
    "<script>alert(1)</script>",
    "'; DROP",
)
"""Strings that do harm where they are shown as they are."""

_IDS: tuple[Any, ...] = (
    1,
    1,
    2,
    3,
    "a",
    "",
    0,
    -1,
    True,
    None,
    1.0,
    1.5,
    2**63,
    10**30,
    [],
    [1],
    {},
    {"a": 1},
    "x" * 5000,
)
_METHODS: tuple[Any, ...] = (
    "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/read", "resources/list", "initialize",
    "logging/setLevel", "completion/complete", "server/discover", "notifications/initialized", "notifications/progress",
    "notifications/roots/list_changed", "sampling/createMessage", "nobody/knows", "", "x" * 10_000, None, 5, True, [], {},
)  # fmt: skip
_PARENTS: tuple[Any, ...] = (
    "00-" + "1" * 32 + "-" + "2" * 16 + "-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-" + "1" * 32, "", 5, None,
    [], {}, "x" * 10_000, "00-" + "\u0661" * 32 + "-" + "2" * 16 + "-01", "\ud800",
)  # fmt: skip
_SENT: tuple[Any, ...] = (
    None, 1, "x", [], {}, {"ns": "x"}, {"ns": True, "clock": "x"}, {"ns": -(2**70), "clock": []}, {"ns": 1e308, "clock": {}},
    {"ns": float("nan"), "clock": None},
)  # fmt: skip


def anything(random: Random, deep: int = 2) -> Any:
    """Any JSON value."""
    kinds = ["none", "number", "text", "hostile"] + (["list", "mapping"] if deep else [])
    kind = random.choice(kinds)
    if kind == "number":
        return random.choice([0, 1, -1, 1.5, 2**64, 1e308, True, False, float("inf")])
    if kind == "text":
        return random.choice(["", "a", "\ud800", "\U0001f600", "\u2028", "x" * 2000])
    if kind == "hostile":
        return random.choice(HOSTILE)
    if kind == "list":
        return [anything(random, deep - 1) for _ in range(random.randint(0, 3))]
    if kind == "mapping":
        return {str(anything(random, 0)): anything(random, deep - 1) for _ in range(random.randint(0, 3))}
    return None


def _meta(random: Random) -> Any:
    if random.random() < 0.2:
        return anything(random)
    return {
        "traceparent": random.choice(_PARENTS),
        "tracestate": anything(random, 1),
        "mcp-probe/sent": random.choice(_SENT),
        "progressToken": random.choice(_IDS),
        random.choice(HOSTILE): anything(random, 1),
    }


def _call(random: Random, id: Any) -> dict[str, Any]:
    names: tuple[Any, ...] = ("echo", "echo", "fail", "ask", "wait", *HOSTILE, "x" * 10_000, None, 5, [], {})
    name = random.choice(names)
    arguments = random.choice(
        [{"text": "x"}, {"text": anything(random, 1)}, anything(random), {random.choice(HOSTILE): 1}]
    )
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if random.random() < 0.5:
        params["_meta"] = _meta(random)
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def message(random: Random) -> Any:
    """What one line or one body holds."""
    id = random.choice(_IDS)
    kind = random.choice(
        ["call", "call", "call", "request", "request", "notice", "cancel", "answer", "uri", "odd", "batch"]
    )
    if kind == "call":
        return _call(random, id)
    if kind == "cancel":  # of what nobody asked: whether one that runs is cancelled in time is not for us to say
        of: Any = random.choice(["unknown", None, [], {}, 2**63, *HOSTILE])
        return {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": of, "reason": anything(random, 1)},
        }
    if kind == "answer":
        said = {"result": anything(random)} if random.random() < 0.5 else {"error": {"code": -1, "message": "x"}}
        return {"jsonrpc": "2.0", "id": random.choice([0, 1, 2, 77, "x", None, 1.5]), **said}
    if kind == "uri":
        uri = random.choice(["note://a?secret=1#x", "note://u:p@h/", "note://\x1b[2J", "", "%", 5, None, "x" * 10_000])
        return {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": uri}}
    if kind == "batch":
        return [message(random) for _ in range(random.randint(0, 3))]
    made: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": id,
        "method": random.choice((*_METHODS, *HOSTILE)),
        "params": anything(random),
    }
    if kind == "notice":
        del made["id"]
    if kind == "odd":
        for key in random.sample(sorted(made), random.randint(1, 3)):
            if random.random() < 0.5:
                del made[key]
            else:
                made[key] = anything(random)
    return made


def text(random: Random, most: int) -> bytes:
    """One line without its end, or one body."""
    kind = random.choice(["message"] * 12 + ["deep", "large", "bytes", "cut", "twice"])
    if kind == "deep":
        depth = random.choice([10, 200, 5000, 100_000])
        return b"[" * depth + b"]" * depth if random.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth
    if kind == "large":
        call = {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "x" * most}},
        }
        return json.dumps(call).encode()
    if kind == "bytes":
        odd = (
            b"",
            b"   ",
            b"\xff\xfe\x80",
            b"\x00",
            b"\xef\xbb\xbf{}",
            b"\xc3(",
            b"\x1b[2J",
            b"\xe2\x80\xa8",
            b"{}{}",
            b"NaN",
            b'"',
        )
        return b"".join(random.choice(odd) for _ in range(random.randint(1, 4)))
    made = json.dumps(message(random), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind == "cut":
        return made[: random.randint(0, len(made))]
    if kind == "twice":
        return made.replace(b'"jsonrpc"', b'"id": 7, "jsonrpc": "2.0", "jsonrpc"', 1)
    return made


def stdio_case(random: Random, most: int) -> Case:
    """Lines, and where they are cut into writes."""
    lines = b""
    for _ in range(random.randint(1, 12)):
        lines += text(random, most).replace(b"\n", b" ") + random.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n"])
    return [_cut(random, lines)]


def _cut(random: Random, whole: bytes) -> list[bytes]:
    places = sorted(random.randint(0, len(whole)) for _ in range(random.choice([0, 0, 1, 3])))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True) if a < b] or [b""]


_SESSIONS = ("{SESSION}",) * 60 + ("", "unknown", "x" * 8 * KILOBYTE, "\x1b[2J", "a, b", "{SESSION}{SESSION}")
_VERSIONS = (VERSION,) * 40 + ("", "1999-01-01", "2026-07-28", "x" * 8 * KILOBYTE, "'; DROP", "\xff")
_ACCEPTS = ("application/json, text/event-stream",) * 40 + (
    "",
    "*/*",
    "application/json",
    "text/html",
    "x" * 8 * KILOBYTE,
)
_TYPES = ("application/json",) * 40 + (
    "",
    "text/plain",
    "application/json; charset=utf-16",
    "multipart/form-data; boundary=x",
)


def http_request(random: Random, most: int, *, bare_path: bool = False) -> bytes:
    """One request, more or less."""
    verb = random.choice(["POST"] * 30 + ["PUT", "DELETE", "OPTIONS", "HEAD", "post", "\x1b[2J"])
    body = text(random, most)
    path = random.choice(["/mcp"] * 60 + ["/mcp?a=b", "/mcp/", "/", "//mcp", "/mcp%00"])
    if bare_path and verb == "DELETE":
        verb = "PUT"
    lines = [f"{verb} {path} HTTP/1.1", "Host: 127.0.0.1:80", "Connection: close"]
    if not bare_path:
        if session := random.choice(_SESSIONS):
            lines.append(f"Mcp-Session-Id: {session}")
        if version := random.choice(_VERSIONS):
            lines.append(f"Mcp-Protocol-Version: {version}")
        if random.random() < 0.2:
            lines.append(f"Last-Event-ID: {random.choice(['1', '', 'x' * 8 * KILOBYTE, '-1', 'a b'])}")
    lines += [f"Accept: {random.choice(_ACCEPTS)}", f"Content-Type: {random.choice(_TYPES)}"]
    if random.random() < 0.2:
        lines.append(f"{random.choice(['X-Odd', 'Cookie', 'traceparent', 'Authorization'])}: {'y' * 8 * KILOBYTE}")
    framing = random.choice(["length"] * 20 + ["chunks"] * 12 + ["wrong", "odd", "both", "none"])
    if framing in ("length", "both"):
        lines.append(f"Content-Length: {len(body)}")
    if framing == "wrong":
        lines.append(f"Content-Length: {max(0, len(body) + random.choice([-5, -1, 1, 5]))}")
    if framing == "odd":
        lines.append(f"Content-Length: {random.choice(['-1', 'x', '1e3', '9' * 40, '0x10', '1, 2', ''])}")
    if framing in ("chunks", "both"):
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(random, body)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _chunked(random: Random, body: bytes) -> bytes:
    made = b""
    for chunk in _cut(random, body):
        size = (
            b"%x" % len(chunk)
            if random.random() < 0.9
            else random.choice([b"zz", b"-1", b"f" * 20, b"%X;a=b" % len(chunk)])
        )
        made += size + b"\r\n" + chunk + b"\r\n" if chunk else b""
    return made + random.choice([b"0\r\n\r\n"] * 6 + [b"0\r\nX-Trailer: \x1b[2J\r\n\r\n", b"", b"0\r\n"])


def http_case(random: Random, most: int, *, bare_path: bool = False) -> Case:
    """Requests, each on a connection of its own, or pipelined."""
    connections = []
    for _ in range(random.randint(1, 4)):
        several = random.choice([1] * 6 + [2, 3])
        sent = b"".join(http_request(random, most, bare_path=bare_path) for _ in range(several))
        connections.append(_cut(random, sent))
    return connections


def case(random: Random, transport: Transport, most: int = KILOBYTE) -> Case:
    """One case; a large message has ``most`` bytes."""
    return stdio_case(random, most) if transport == "stdio" else http_case(random, most, bare_path=transport == "sse")


FRESH, FIRST = 50, 300
"""Requests in a case of a soak whose names nobody has used before; in the first, so many that the rows of operations are full."""


def soak_case(random: Random, transport: Transport, *, first: bool = False) -> Case:
    """A case of :func:`case`, and requests of which every name that a client chooses is a new one."""
    found = case(random, transport)
    made = [_made_up(random, new_tool=first) for _ in range(FIRST if first else FRESH)]
    if transport == "stdio":
        return [[b"".join(line + b"\n" for line in made), *found[0]]]
    return [*([_posted(random, body)] for body in made), *found]


def _made_up(random: Random, *, new_tool: bool) -> bytes:
    def new() -> str:
        return f"{random.choice(HOSTILE)}{random.getrandbits(64):x}"

    meta: dict[str, Any] = {
        "traceparent": f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01",
        "tracestate": new(),
    }
    meta.update(
        {"progressToken": new(), "mcp-probe/sent": {"ns": random.getrandbits(62), "clock": new()}, new(): new()}
    )
    params: dict[str, Any] = {
        "name": random.choice([new(), "echo", "fail"]),
        "uri": f"note://{random.getrandbits(64):x}",
    }
    params |= {"arguments": {"text": new(), new(): 1}, "_meta": meta}
    method = random.choice(["tools/call", "tools/call", "prompts/get", "resources/read", new()])
    if new_tool:
        method, params["name"] = "tools/call", new()
    return json.dumps({"jsonrpc": "2.0", "id": new(), "method": method, "params": params}).encode()


def _posted(random: Random, body: bytes) -> bytes:
    session = random.choice(["{SESSION}"] * 9 + [f"{random.getrandbits(128):032x}"])
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1:80", "Connection: close", f"Mcp-Session-Id: {session}"]
    lines += ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
    lines += [f"X-{random.getrandbits(64):x}: {random.getrandbits(64):x}", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


Sizes = tuple[int, int, int]
"""Resident bytes of the bare server, of the probed one, and how many objects of types of the probe there are."""

MORE_BYTES, MORE_OBJECTS = 5_000_000, 500
"""What may come on top in a soak: as ``benchmarks/soak.py`` allows, and the steps and waits of the last few seconds."""


LEAST_ROUNDS = 9


def growth(sizes: Sequence[Sizes]) -> tuple[int, int]:
    """(bytes by which the probed server grew more than the bare one, objects of the probe that came on top).

    From the second third of the rounds to the last: before, both warm up.
    """
    third = len(sizes) // 3
    early, late = sizes[third : 2 * third], sizes[2 * third :]
    bare, probed, objects = (
        int(median(each[index] for each in late) - median(each[index] for each in early)) for index in range(3)
    )
    return probed - max(0, bare), objects


def grew(sizes: Sequence[Sizes]) -> str | None:
    """What grew in a soak that may not, ``None``: nothing."""
    if len(sizes) < LEAST_ROUNDS:
        return f"{len(sizes)} rounds are too few to tell; give it more seconds"
    more, objects = growth(sizes)
    if more <= MORE_BYTES and objects <= MORE_OBJECTS:
        return None
    return f"{more} bytes more than bare, {objects} objects more, in {len(sizes)} rounds from {sizes[0]} to {sizes[-1]}"


class Child:
    """The server of ``programs/odd_input.py``, in a process of its own."""

    def __init__(self, python: str | Path, how: How, transport: Transport, *, soak: bool = False) -> None:
        command = [str(python), "-m", "tests.harm.programs.odd_input", how, transport, *(["soak"] if soak else [])]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(how), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, sent: Case) -> dict[str, Any]:
        """What came of it."""
        assert self.process.stdin is not None
        encoded = [[base64.b64encode(chunk).decode() for chunk in chunks] for chunks in sent]
        self.process.stdin.write(json.dumps(encoded).encode() + b"\n")
        self.process.stdin.flush()
        return self.said()

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server's process ended with {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> dict[str, Any]:
        """What the probe reports in the end; nothing where there is none."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if self.process.stdout.closed:
            return {}
        try:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            line = self.process.stdout.readline()
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        return json.loads(line) if line else {}


class Pair:
    """A bare and a probed server that get the same."""

    def __init__(self, python: str | Path, core: How, transport: Transport, *, soak: bool = False) -> None:
        self.bare = Child(python, "bare", transport, soak=soak)
        self.probed = Child(python, core, transport, soak=soak)
        self.sizes: list[Sizes] = []
        self.results = 0  # answers of the probed server that are no errors

    def difference(self, sent: Case) -> str | None:
        """What the probe changed, keeps or has given up. An order that a race decides must be met again."""
        bare: list[list[str]] = []
        probed: list[list[str]] = []
        for _ in range(TRIES):
            unprobed, said = self.bare.ask(sent), self.probed.ask(sent)
            bare.append(unprobed["answers"])
            probed.append(said["answers"])
            self.sizes.append((unprobed["resident"], said["resident"], said["objects"]))
            self.results += sum(map(_is_result, said["answers"]))
            if said["held"] or said["disabled"]:
                return f"held {said['held']}, disabled {said['disabled']}, sent {sent!r:.2000}"
            if any(one in bare for one in probed):
                return None
        return f"bare {_shown(bare[-1], probed[-1])}\nprobed {_shown(probed[-1], bare[-1])}\nsent {sent!r:.2000}"

    def close(self) -> dict[str, Any]:
        self.bare.close()
        return self.probed.close()


def _is_result(answer: str) -> bool:
    """Whether it is an answer over stdio that is no error, in its own line."""
    with suppress(ValueError):
        said = json.loads(base64.b64decode(answer))
        return "result" in said and said["result"].get("isError") is not True
    return False


def _shown(answers: Sequence[str], others: Iterable[str]) -> list[bytes]:
    others = list(others)
    return [base64.b64decode(one)[:1000] for one in answers if one not in others]


def shows_raw(report: dict[str, Any]) -> list[str]:
    """Characters of the console's report that a terminal obeys, apart from our own colours."""
    shown = re.sub(r"\x1b\[[0-9;]*m", "", report["console"])
    return sorted({one for one in shown if not one.isprintable() and one not in "\n\u00a0"})
