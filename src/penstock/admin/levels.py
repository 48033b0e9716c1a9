"""`/logs/level`: shows the level of each logger, and changes it while the application runs."""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.answers import Json, json_object, refuse
from penstock.runtime.application import RunningApplication

_log = logging.getLogger(__name__)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
ROOT = "root"


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""

    async def level(request: Request) -> Json:
        if request.method == "POST":
            change = await json_object(request, "logger", "level")
            set_level(change["logger"], change["level"])
        return Json({"levels": levels()})

    return [Route("/logs/level", level, methods=["GET", "POST"])]


def levels() -> dict[str, str]:
    """Return the loggers that have a level of their own; the others inherit their parent's."""
    named = {ROOT: logging.getLogger(), **{name: logging.getLogger(name) for name in _known() if name != ROOT}}
    return {name: logging.getLevelName(logger.level) for name, logger in sorted(named.items()) if logger.level}


def set_level(name: Any, level: Any) -> None:
    """Set the level of a logger; None makes it inherit its parent's."""
    if not isinstance(name, str) or (name != ROOT and name not in _known()):
        shown = repr(name)[:50]
        refuse(f"Unknown logger {shown}: expected {ROOT!r} or a logger in use, such as 'penstock.runtime.loop.epochs'.")
    if level not in _LEVELS and (level is not None or name == ROOT):
        shown = repr(level)[:50]
        refuse(f"Invalid level {shown}: expected {', '.join(_LEVELS)}, or null to inherit it (not for {ROOT!r}).")
    logger = logging.getLogger(None if name == ROOT else name)
    before = logging.getLevelName(logger.level)
    logger.setLevel(level or logging.NOTSET)
    _log.warning("admin server: level of logger %s changed from %s to %s", name, before, level)


def _known() -> list[str]:
    """Return the loggers that exist, and their packages: a logger created for a request would never be removed."""
    return list(logging.root.manager.loggerDict)
