"""`/topology`: the graph as JSON, and in forms for people (`?format=text`, `mermaid`, `svg`)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.admin.answers import Json, refuse
from penstock.runtime.application import RunningApplication
from penstock.topology import Topology
from penstock.topology.json_view import json_view

_FORMS: dict[str, tuple[Callable[[Topology], str], str]] = {
    "text": (Topology.describe, "text/plain"),
    "mermaid": (Topology.mermaid, "text/plain"),
    "svg": (Topology.svg, "image/svg+xml"),
}


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""

    async def topology(request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form == "json":
            return Json(json_view(running.topology))
        if form not in _FORMS:
            refuse(f"Invalid format {form[:50]!r}: expected json, {', '.join(_FORMS)}.")
        draw, media_type = _FORMS[form]
        return Response(draw(running.topology), media_type=media_type)

    return [Route("/topology", topology)]
