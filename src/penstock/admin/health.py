"""`/health/live` and `/health/ready`: what a probe asks. Anybody may; why something is not well is told to who may read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.access import Access
from penstock.admin.answers import Json
from penstock.admin.guard import granted
from penstock.observing import Problem, RestoreReport
from penstock.running.running import Running

LIVE = "/health/live"
READY = "/health/ready"

_CHECKS_S = 2.0
Problems = tuple[Problem, ...]


def routes(running: Running) -> list[Route]:
    """The routes of this module."""
    checks = Checks(running.health.ready)

    async def live(request: Request) -> Json:
        return answer(request, running.health.live())

    async def ready(request: Request) -> Json:
        return answer(request, await checks.result())

    def answer(request: Request, problems: Problems) -> Json:
        report: dict[str, Any] = {"status": "failing" if problems else "ok"}
        if granted(request) >= Access.READ:
            report["state"] = running.state.value
            report["problems"] = [problem._asdict() for problem in problems]
            report["restore"] = restore_report(running.recorder.restore)
        return Json(report, HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)

    return [Route(LIVE, live), Route(READY, ready)]


def restore_report(restore: RestoreReport | None) -> dict[str, Any] | None:
    """How far a restore has come, as JSON."""
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


class Checks:
    """Asks whether an application is ready. Users' own checks are part of that and may block: a thread asks, one at a time."""

    def __init__(self, ready: Callable[[], Problems]) -> None:
        self._ready = ready
        self._asked: asyncio.Future[Problems] | None = None

    async def result(self) -> Problems:
        """The problems; a check that does not come back in time is one."""
        if self._asked is None or self._asked.done():
            self._asked = self._ask()
        done, _ = await asyncio.wait([self._asked], timeout=_CHECKS_S)
        if done:
            return self._asked.result()
        return (Problem("slow check", f"a health check has not answered within {_CHECKS_S:g} s"),)

    def _ask(self) -> asyncio.Future[Problems]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Problems] = loop.create_future()

        def ask() -> None:
            problems = self._ready()
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(answer.set_result, problems)

        # Not asyncio's own threads: the process would wait for one that hangs before it could end.
        threading.Thread(target=ask, name="penstock-health-checks", daemon=True).start()
        return answer
