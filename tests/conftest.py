"""Shared by all tests: Hypothesis has no deadline, because a slow machine is not a failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
