"""`/health/live` and `/health/ready`, for probes. They need no token; only callers who may read get the reasons."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.access import Access
from penstock.admin.answers import Json
from penstock.admin.aside import Aside
from penstock.admin.guard import granted
from penstock.observation import Problem, RestoreReport
from penstock.runtime.application import RunningApplication

LIVE = "/health/live"
READY = "/health/ready"

_CHECKS_S = 2.0


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""
    checks = Aside(running.health.ready, "health-checks")

    async def live(request: Request) -> Json:
        return answer(request, running.health.live())

    async def ready(request: Request) -> Json:
        try:
            problems = await checks.answer(_CHECKS_S)
        except TimeoutError:
            problems = (Problem("slow check", f"a health check took longer than {_CHECKS_S:g} s"),)
        return answer(request, problems)

    def answer(request: Request, problems: tuple[Problem, ...]) -> Json:
        report: dict[str, Any] = {"status": "failing" if problems else "ok"}
        if granted(request) >= Access.READ:
            report["state"] = running.state.value
            report["paused"] = running.is_paused
            report["problems"] = [problem._asdict() for problem in problems]
            report["restore"] = restore_report(running.recorder.restore)
        return Json(report, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)

    return [Route(LIVE, live), Route(READY, ready)]


def restore_report(restore: RestoreReport | None) -> dict[str, Any] | None:
    """Return the progress of a restore, as JSON."""
    if restore is None:
        return None
    return {
        "done": restore.is_done,
        "fraction": round(restore.fraction, 4),
        "seconds": round(restore.seconds, 3),
        "lanes": [
            {"lane": lane, "left": restore.left.get(lane, 0), "total": total} for lane, total in sorted(restore.total.items())
        ],
    }
