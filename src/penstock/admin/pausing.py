"""`/pause` and `/resume`: whether epochs may begin."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.answers import Json, json_object
from penstock.runtime.application import RunningApplication

PAUSE = "/pause"
RESUME = "/resume"


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""

    async def pause(request: Request) -> Json:
        if request.method == "POST":
            await json_object(request)
            running.pause()
        return Json(pause_report(running))

    async def resume(request: Request) -> Json:
        await json_object(request)
        running.resume()
        return Json(pause_report(running))

    return [Route(PAUSE, pause, methods=["GET", "POST"]), Route(RESUME, resume, methods=["POST"])]


def pause_report(running: RunningApplication) -> dict[str, Any]:
    """Return whether the application is paused, and whether that has taken effect."""
    return {
        "application_id": running.application_id,
        "state": running.state.value,
        "paused": running.is_paused,
        "at_rest": running.is_at_rest,
    }
