"""All routes of the admin server, and which of them need no token, or only the read token."""

from __future__ import annotations

import re

from starlette.routing import Route

from penstock.admin import dashboard, health, lanes, levels, pausing, queries, reports, settings, topology
from penstock.runtime.application import RunningApplication

OPEN = frozenset({health.LIVE, health.READY}) | dashboard.PUBLIC
"""No token needed: a probe has none, and the page must load before it can ask for one."""

ASKING = queries.ASKING
"""These only read although they use POST: the read token is enough."""


def routes(running: RunningApplication) -> list[Route]:
    """Return all routes, the busiest first: they are tried in order."""
    together = [
        *queries.routes(running),
        *health.routes(running),
        *reports.routes(running),
        *topology.routes(running),
        *settings.routes(running),
        *levels.routes(running),
        *pausing.routes(running),
        *lanes.routes(running),
        *dashboard.routes(running),
    ]
    for route in together:  # Starlette's patterns end with $, which also matches before a final newline
        route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
    return together
