"""All routes of the admin server, and which of them need less than a token to operate."""

from __future__ import annotations

import re

from starlette.routing import Route

from penstock.admin import dashboard, health, levels, queries, reports, settings, topology
from penstock.running.running import Running

OPEN = frozenset({health.LIVE, health.READY}) | dashboard.PUBLIC
"""Without a token: a probe has none, and a page has to be there before it can ask for one."""

ASKING = queries.ASKING
"""By POST, and yet they only ask: a token to read is enough."""


def routes(running: Running) -> list[Route]:
    """Those asked most often first: they are tried in order."""
    together = [
        *queries.routes(running),
        *health.routes(running),
        *reports.routes(running),
        *topology.routes(running),
        *settings.routes(running),
        *levels.routes(running),
        *dashboard.routes(running),
    ]
    for route in together:  # Starlette's end with $, which a line end may follow
        route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
    return together
