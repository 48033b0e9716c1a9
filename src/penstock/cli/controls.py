"""`penstock lanes`, `pause` and `resume`: how many lanes a running application has, and whether it begins epochs."""

from __future__ import annotations

import time
from typing import Any

from penstock.cli.requests import AdminConnection, RefusedRequestError
from penstock.cli.screen import output_console, shown

_LOOK_EVERY_S = 0.2
_STARTING = ("running", "rebalancing")


def show_lanes(server: AdminConnection) -> None:
    """Print how many lanes the application has."""
    _print(server.get("/lanes"))


def change_lanes(server: AdminConnection, lanes: int) -> None:
    """Change the number of lanes, and wait until records are processed with it."""
    report = server.post("/lanes", {"lanes": lanes})
    while report["lanes"] != lanes or report["state"] != "running":
        if report["state"] not in _STARTING:
            raise RefusedRequestError(f"/lanes: the application is {report['state']} and did not start with {lanes} lanes.")
        time.sleep(_LOOK_EVERY_S)
        report = server.get("/lanes")
    _print(report)


def _print(report: dict[str, Any]) -> None:
    count = f"{report['lanes']} of at most {report['shards']} lanes"
    output_console().print(shown(f"{report['application_id']} is {report['state']} with {count}"))


def pause_application(server: AdminConnection) -> None:
    """Pause the application, and wait until the epochs that have begun are committed."""
    report = server.post("/pause", {})
    while not report["at_rest"]:
        time.sleep(_LOOK_EVERY_S)
        report = server.get("/pause")
        if not report["paused"]:
            raise RefusedRequestError("/pause: the application was resumed before the epochs that had begun were committed.")
    output_console().print(shown(f"{report['application_id']} is paused, and everything that it has read is committed"))


def resume_application(server: AdminConnection) -> None:
    """Resume the application."""
    report = server.post("/resume", {})
    output_console().print(shown(f"{report['application_id']} is {report['state']}, and not paused"))
