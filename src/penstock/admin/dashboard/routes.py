"""`/`: the dashboard, its files and its data."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.admin.answers import Json
from penstock.admin.dashboard.snapshot import snapshot
from penstock.topology.layout import layout
from penstock.topology.svg import STYLE, svg

if TYPE_CHECKING:
    from penstock.runtime.application import RunningApplication

_HERE = Path(__file__).parent
_FILES = {
    "/": ("page.html", "text/html"),
    "/dashboard/page.css": ("page.css", "text/css"),
    "/dashboard/page.js": ("page.js", "text/javascript"),
    "/dashboard/icon.svg": ("icon.svg", "image/svg+xml"),
}
_DRAWING = "/dashboard/drawing.css"

PUBLIC = frozenset({*_FILES, _DRAWING})
"""No token needed: a browser that opens a page has none. These files hold nothing about the application."""


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this package."""

    @cache  # a topology never changes
    def drawing() -> str:
        return svg(layout(running.topology), style="")

    def state(request: Request) -> Response:
        after = request.query_params.get("after", "")
        if after and not (after.isascii() and after.isdigit() and len(after) < 20):
            return Json({"error": f"Invalid after {after[:50]!r}: expected an epoch's number."}, HTTPStatus.BAD_REQUEST)
        return Json(snapshot(running, int(after or -1)))

    def drawn(_: Request) -> Response:
        return Response(drawing(), media_type="image/svg+xml")

    files = [_served(path, (_HERE / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()]
    return [
        Route("/dashboard/snapshot", state),
        Route("/dashboard/topology.svg", drawn),
        *files,
        _served(_DRAWING, STYLE.encode(), "text/css"),
    ]


def _served(path: str, content: bytes, kind: str) -> Route:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, serve)
