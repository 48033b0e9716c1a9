"""`/logs/level`: from which level on each logger speaks, and changing that while the application runs."""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.answers import Json, json_object, refuse
from penstock.running.running import Running

_log = logging.getLogger(__name__)
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
ROOT = "root"


def routes(running: Running) -> list[Route]:
    """The routes of this module."""

    async def level(request: Request) -> Json:
        if request.method == "POST":
            change = await json_object(request, "logger", "level")
            set_level(change["logger"], change["level"])
        return Json({"levels": levels()})

    return [Route("/logs/level", level, methods=["GET", "POST"])]


def levels() -> dict[str, str]:
    """The loggers that have a level of their own; the others follow those above them."""
    named = {ROOT: logging.getLogger(), **{name: logging.getLogger(name) for name in _known() if name != ROOT}}
    return {name: logging.getLevelName(logger.level) for name, logger in sorted(named.items()) if logger.level}


def set_level(name: Any, level: Any) -> None:
    """Let a logger speak from a level on; None lets it follow those above it."""
    if not isinstance(name, str) or (name != ROOT and name not in _known()):
        refuse(f"logger is {ROOT!r}, or the name of one that is in use, such as 'penstock.running.epochs'")
    if level not in _LEVELS and (level is not None or name == ROOT):
        refuse(f"level is {', '.join(_LEVELS)}, or null to follow the loggers above")
    logger = logging.getLogger(None if name == ROOT else name)
    before = logging.getLevelName(logger.level)
    logger.setLevel(level or logging.NOTSET)
    _log.warning("logger %s: level %s instead of %s, by the admin server", name, level, before)


def _known() -> list[str]:
    """Loggers that exist, and packages of them: one that a request made up would never go away again."""
    return list(logging.root.manager.loggerDict)
