"""What a test is told where it asks for a number that nobody knows."""

from __future__ import annotations

from mcp_probe.errors import ProbeError


class NotMeasuredError(ProbeError):
    """A test asked for a number that is not known here. It says why, and what to do: such a test must not pass."""
