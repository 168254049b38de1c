"""A clock that a test moves: no test needs to wait for time to pass."""

from __future__ import annotations

from mcp_probe.errors import OptionError


class ManualClock:
    """Stands still until :meth:`advance` moves it, and never goes back.

    Call it for integer nanoseconds, as ``time.monotonic_ns()`` gives them. It may stand in for that, and
    :meth:`seconds` for ``time.monotonic``. :func:`mcp_probe.testing.make_record` takes it for the times of records.
    A probe that is attached does not: it reads the machine's clock.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def __call__(self) -> int:
        return self._now_ns

    def seconds(self) -> float:
        """The same instant in seconds."""
        return self._now_ns / 1e9

    def advance(self, *, s: float = 0, ms: float = 0, us: float = 0, ns: int = 0) -> int:
        """Move on by the sum of these, rounded to a nanosecond; gives the new instant.

        Raises: OptionError if that would go back.
        """
        by_ns = round(s * 1e9) + round(ms * 1e6) + round(us * 1e3) + ns
        if by_ns < 0:
            raise OptionError(f"The clock was moved by {by_ns} ns. It never goes back: give a length of 0 or more.")
        self._now_ns += by_ns
        return self._now_ns

    def __repr__(self) -> str:
        return f"ManualClock({self._now_ns})"
