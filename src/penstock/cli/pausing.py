"""`penstock pause` and `penstock resume`: whether a running application begins epochs."""

from __future__ import annotations

import time

from penstock.cli.requests import AdminConnection, RefusedRequestError
from penstock.cli.screen import output_console, shown

_LOOK_EVERY_S = 0.2


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
