"""Notifications to the client (progress, log messages, updates, list changes): how many a request sends, how long the
transport writes them.

A notification is its sender's: of the request that is current where it is handed to the transport. One that nobody's
request sends is not counted. Channels tell both; only that of stdio sees when its writer takes each message, and when
it has flushed it.
"""

from __future__ import annotations

from mcp_probe.capture.hub import Hub
from mcp_probe.capture.measuring import Add
from mcp_probe.record.raw import RawRequest

COUNT, TIME = "notifications", "notification_write"


class Notifications:
    """Reads ``notifications`` and ``notification_write``."""

    def __init__(self, hub: Hub, add: Add) -> None:
        self._requests = hub.requests
        self._charge = hub.measuring.charge_alone  # a server inside of a tool has another client
        hub.requests.notifications = self

    def sent(self, raw: RawRequest) -> None:
        """``raw`` sends one. Loop's thread."""
        self._charge(raw, COUNT, 1)

    def written(self, raw: RawRequest, write_ns: int) -> None:
        """The transport has written one. Worker thread."""
        self._charge(raw, TIME, write_ns)

    def is_complete(self) -> bool:
        """Whether it sees all that the channel sees."""
        return True

    def restore(self) -> list[str]:
        """Channels tell nothing from now on."""
        self._requests.notifications = None
        return []
