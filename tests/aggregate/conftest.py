"""Hypothesis without a deadline: how long an example takes says something of the machine, not of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
