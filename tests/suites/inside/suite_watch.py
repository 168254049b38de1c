"""Attaches the probe to a process that runs somebody else's tests, and proves that it watched.

Imported inside that process, where nothing but ``mcp_probe`` and these modules is of ours. ``SUITE_MODE`` says what to
do: ``bare`` attaches nothing, ``servers`` attaches to every MCP server as ``mcp-probe run`` does, ``live`` makes each
test a live request besides and follows every loop, which is the most invasive state there is.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MODE = os.environ.get("SUITE_MODE", "bare")
FOLDER = os.environ["SUITE_FOLDER"]


class CountingSink:
    """Counts what the probe reports; keeps nothing."""

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.messages = 0
        self.steps = 0
        self.polls = 0
        self._lock = threading.Lock()

    def write(self, lines: list[bytes]) -> None:
        from mcp_probe.record.file import LineDecoder, preamble

        decoder = LineDecoder()
        decoder.feed(preamble())
        with self._lock:
            for line in lines:
                self.frames[json.loads(line)[0]] += 1
                frame: Any = decoder.feed(line)
                if hasattr(frame, "first_step_ns"):
                    self.messages += frame.transport != "function"
                    self.steps += frame.steps
                elif hasattr(frame, "iterations"):
                    self.polls += sum(count for _, count, _ in frame.iterations)

    def close(self) -> None:
        """Nothing is open."""


class Watch:
    """The probe of this process; all of it is nothing in ``bare`` mode."""

    def __init__(self) -> None:
        self.probe: Any = None
        self.sink = CountingSink()
        self.servers = 0
        self.tests = 0
        if MODE == "bare":
            return
        from mcp_probe.session import ForwardingProbe

        watch = self

        class SuiteProbe(ForwardingProbe):
            """As the probe of ``mcp-probe run``, but it also reports where no server was ever made."""

            def attach(self, server: Any) -> None:
                super().attach(server)
                watch.servers += 1

            def _ready_for_header(self, batch: object) -> bool:
                return True

        self.probe = SuiteProbe(self.sink)
        if MODE == "live":
            self._follow_every_loop()

    def _follow_every_loop(self) -> None:
        from asyncio import base_events, events

        loops = self.probe._hooks.loops
        original = events._set_running_loop

        def _set_running_loop(loop: Any) -> None:
            original(loop)
            if isinstance(loop, base_events.BaseEventLoop) or type(loop).__module__.partition(".")[0] == "uvloop":
                loops.follow()

        events._set_running_loop = _set_running_loop

    @contextmanager
    def test(self, name: str) -> Iterator[None]:
        """Around one test: in ``live`` mode it is a request."""
        self.tests += 1
        if MODE != "live":
            yield
            return
        from mcp_probe.capture.current import CURRENT
        from mcp_probe.clock import now_ns

        hub = self.probe._hub
        raw = hub.begin("function", name, None, "function", self.probe)
        token = CURRENT.set(raw)
        try:
            yield
        finally:
            CURRENT.reset(token)
            now = now_ns()
            hub.requests.finished(raw, now)
            hub.requests.end(raw, now)

    def prove(self) -> None:
        """Detach, and write what was watched for whoever compares."""
        proof: dict[str, Any] = {"mode": MODE, "tests": self.tests}
        if self.probe is not None:
            from mcp_probe import native

            hooks = dict(self.probe._hub.hooks)
            self.probe.detach()
            sink = self.sink
            proof.update(
                accelerator=native.state(),
                servers=self.servers,
                messages=sink.messages,
                steps=sink.steps,
                polls=sink.polls,
                requests=sink.frames["request"],
                hooks=hooks,
                stuck=list(self.probe._stuck),
            )
        with open(os.path.join(FOLDER, f"proof-{os.getpid()}.json"), "w") as file:
            json.dump(proof, file)
