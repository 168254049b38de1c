"""Differences between bare and probed runs that are known and not mended yet, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

KNOWN: Mapping[str, Mapping[str, str]] = {}
"""Suite → test → why it differs."""
