"""`/lanes`: how many lanes the application has, and another number of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.answers import Json, json_object, refuse
from penstock.errors import ConfigError
from penstock.runtime.application import RunningApplication

LANES = "/lanes"


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""

    async def lanes(request: Request) -> Json:
        if request.method == "POST":
            given = (await json_object(request, "lanes"))["lanes"]
            if not isinstance(given, int) or isinstance(given, bool):
                refuse("Invalid lanes: expected a whole number.")
            try:
                running.change_lanes(given)
            except ConfigError as error:
                refuse(str(error))
        return Json(report(running))

    return [Route(LANES, lanes, methods=["GET", "POST"])]


def report(running: RunningApplication) -> dict[str, Any]:
    """Return how many lanes the application has, and how many are possible."""
    return {
        "application_id": running.application_id,
        "state": running.state.value,
        "lanes": running.lanes,
        "shards": running.shards,
    }
