"""Errors that a caller may catch. Each is a full sentence: what was found, what was expected, what to do."""

from __future__ import annotations


class ProbeError(Exception):
    """Base of every error mcp_probe raises on purpose."""


class UnsupportedServerError(ProbeError):
    """``attach`` was given an object that no adapter knows."""


class OptionError(ProbeError, ValueError):
    """An option has a value outside its range, or two options exclude each other."""


class RecordingError(ProbeError):
    """A recording could not be read: not one of ours, an unknown version, or damaged."""


class MissingExtraError(ProbeError):
    """A feature needs an optional package; the message names the extra to install."""


class LaunchError(ProbeError):
    """``mcp-probe run`` could not start the command."""


class AttachError(ProbeError):
    """`mcp-probe attach` cannot look at a process, or cannot bring the probe into it."""


class LiveError(ProbeError):
    """A running server cannot be watched: it is not there, speaks another version, or has no place for its socket."""
