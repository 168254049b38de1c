"""A real Redis and a real PostgreSQL on loopback, started for a test module; skipped where they are not installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

HOW = "`make databases` installs it"
LONG_S = 60.0


@contextmanager
def redis_server(user: str, password: str) -> Iterator[int]:
    """The port of a Redis that only ``user`` may use."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip(f"redis-server is not installed; {HOW}")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no")
        rights = ("--user", user, "on", f">{password}", "~*", "&*", "+@all", "--user", "default", "off")
        with running([program, *options, *rights], port):
            yield port


@contextmanager
def postgresql_server(user: str) -> Iterator[int]:
    """The port of a PostgreSQL of which ``user`` is the owner, without a password. It refuses to be run by root."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip(f"PostgreSQL is not installed; {HOW}")
    who = None
    if os.geteuid() == 0:
        who = next((name for name in ("postgres", "nobody") if name in {one.pw_name for one in pwd.getpwall()}), None)
    folder = Path(tempfile.mkdtemp())
    try:
        if who is not None:
            os.chown(folder, pwd.getpwnam(who).pw_uid, -1)
        bin_, data, port = programs[-1].parent, folder / "data", free_port()
        make = [
            str(bin_ / "initdb"),
            "-D",
            str(data),
            "-U",
            user,
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(make, check=True, capture_output=True, user=who, cwd="/")
        options = ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=", "fsync=off")
        serve = [str(bin_ / "postgres"), "-D", str(data), *(part for option in options for part in ("-c", option))]
        with running(serve, port, who):
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(command: list[str], port: int, user: str | None = None) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, user=user, cwd="/") as process:
        try:
            until = time.monotonic() + LONG_S
            while process.poll() is None and time.monotonic() < until and not answers(port):
                time.sleep(0.05)
            assert process.poll() is None, f"{command[0]} has ended"
            yield
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
