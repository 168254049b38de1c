"""A headless Chromium, driven over a pipe: no port, no driver, nothing to install beside the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0

# It reads from descriptor 3 and writes to 4.
WIRING = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a Chromium, or ``None`` where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser. ``events`` are what it told unasked, in order."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def open(self) -> None:
        """A blank page, of which everything is told."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers. Raises: AssertionError where it answers an error, or nothing in time."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda told: told.get("id") == self._number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> dict[str, Any]:
        """The next event of this name; one that came before counts too."""
        for event in self.events:
            if event["method"] == method:
                return event
        return self._wait(lambda told: told.get("method") == method)

    def evaluate(self, expression: str) -> Any:
        """The value of ``expression`` in the page; of a promise, what it is kept with."""
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def show(self, path: Path, *, width: int = 1280, height: int = 900, theme: str = "light") -> None:
        """Loads ``path`` in a window of this size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def picture(self, *, whole: bool = True) -> bytes:
        """The page as PNG."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def press(self, key: str) -> None:
        """One key, as a keyboard gives it to whatever has the focus."""
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Where the first such element is in the window."""
        box = self.evaluate(f"JSON.stringify(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        place = json.loads(box)
        return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2

    def tap(self, x: float, y: float) -> None:
        """A finger, down and up."""
        self.ask("Emulation.setTouchEmulationEnabled", enabled=True)
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.ask("Emulation.setTouchEmulationEnabled", enabled=False)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """The mouse, with its button down from ``start`` to ``end``."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.ask("Page.printToPDF")["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, and scripts that raised."""
        self.evaluate("0")  # what came before it has been read now
        found = []
        for event in self.events:
            told = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(told["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
                found.append(str(told["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def _wait(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            while b"\0" in self._rest:
                line, _, self._rest = self._rest.partition(b"\0")
                told: dict[str, Any] = json.loads(line)
                if "method" in told:
                    self.events.append(told)
                if is_wanted(told):
                    return told
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            assert ready, "the browser said nothing more"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser ended"
            self._rest += chunk


@contextmanager
def browsing(browser: str, folder: Path, extra: Sequence[str] = ()) -> Iterator[Browser]:
    """A browser with a profile of its own below ``folder``; it is ended with everything it started."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", *extra]
    profile = [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "--disable-component-update"]
    profile.append("--disable-background-networking")
    process = subprocess.Popen(
        [sys.executable, "-c", WIRING, str(commands), str(answers), browser, *flags, *profile],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(commands, answers),
    )
    os.close(commands)
    os.close(answers)
    try:
        page = Browser(to_browser, from_browser)
        page.open()
        yield page
    finally:
        os.close(to_browser)  # it ends where its pipe does
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
