"""``python -S outside.py``: a client in a process of its own. Standard library only.

What it is to do comes as JSON on stdin: requests for a port, or lines for two pipes. What was answered goes out.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def over_http(port: int, requests: list[str]) -> list[Any]:
    """Each request in one piece, on one connection, when the one before was answered: status and body."""
    answers: list[Any] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        answered = connection.makefile("rb")
        for request in requests:
            connection.sendall(request.encode())
            status, length = int(answered.readline().split()[1]), 0
            while (line := answered.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            answers.append([status, answered.read(length).decode()])
        answered.close()
    return answers


def over_pipes(to_server: int, from_server: int, lines: list[str]) -> list[Any]:
    """Each line when the one before was answered, if it asks for an answer."""
    answers: list[Any] = []
    with os.fdopen(to_server, "wb", buffering=0) as out, os.fdopen(from_server, "rb") as answered:
        for line in lines:
            out.write(line.encode() + b"\n")
            if "id" in json.loads(line):
                answers.append(answered.readline().decode())
    return answers


if __name__ == "__main__":
    todo = json.load(sys.stdin)
    json.dump(over_http(**todo) if "port" in todo else over_pipes(**todo), sys.stdout)
