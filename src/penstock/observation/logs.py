"""Logs: one line per event, JSON for machines or text for people, the same for this process, slots and Spark's JVM.

All modules use Python's `logging`. This module only formats log records, and passes on those of other processes.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any

import orjson
import structlog
from structlog.contextvars import merge_contextvars
from structlog.stdlib import ExtraAdder, ProcessorFormatter

from penstock.config import Config
from penstock.engines.output import SEAL
from penstock.escapes import escaped
from penstock.observation.redaction import HIDDEN, Redactor
from penstock.settings import is_secret

CONTEXT = ("application", "topology", "incarnation", "lane", "epoch", "phase")
"""Where a line comes from, as far as its process knows."""

_FIRST = ("timestamp", "level", "logger", "event", *CONTEXT)
_SEAL = "seal"
_INDENT = "\n    "
_RECORD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime"})

_output = logging.getLogger("penstock.output")
"""For output of workers and the JVM that is not a log line: `print` in a function, a crash."""


class Formatter(ProcessorFormatter):
    """Formats log records as lines. `labels` are added to every line that does not set them itself."""

    def __init__(self, *, is_json: bool, colors: bool = False, labels: Mapping[str, str], redact: Redactor) -> None:
        self._is_json = is_json
        self._labels = dict(labels)
        self._redact = redact
        render = structlog.processors.JSONRenderer(_as_json) if is_json else structlog.dev.ConsoleRenderer(colors=colors)
        super().__init__(
            processors=[merge_contextvars, ExtraAdder(), structlog.processors.format_exc_info, self._complete, render]
        )

    def _complete(self, _: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        record: logging.LogRecord = event["_record"]
        found = {
            **self._labels,
            **event,
            "timestamp": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        names = [*(name for name in _FIRST if name in found), *(name for name in found if name not in _FIRST)]
        return {escaped(name): self._shown(name, found[name]) for name in names if not name.startswith("_")}

    def _shown(self, name: str, value: object) -> object:
        """Return a value that is safe in a line: without secrets, and without text that looks like another line."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if is_secret(name):
            return HIDDEN
        text = escaped(self._redact(value if isinstance(value, str) else repr(value)))
        return text if self._is_json else text.replace("\n", _INDENT)


def set_up(application_id: str, config: Config | None = None) -> None:
    """Make this process log to standard error, unless logging is already set up.

    Without a configuration, use the default format, so that errors in the configuration can be logged, too.
    """
    if _is_set_up_by_others():
        return
    form, level, redact = (
        ("auto", "INFO", Redactor()) if config is None else (config.log_format, config.log_level, Redactor.of(config))
    )
    is_terminal = sys.stderr.isatty()
    is_json = form == "json" or (form == "auto" and not is_terminal)
    _install(Formatter(is_json=is_json, colors=is_terminal, labels={"application": application_id}, redact=redact), level)


def worker_set_up(config: Config, labels: Mapping[str, str]) -> Callable[[], None]:
    """Return a function that each slot calls once to log like this process.

    It is sent to the slot, so it holds no secrets. Slots always write JSON, which `pass_on` parses.
    """
    return partial(_set_up_worker, config.log_level, dict(labels))


def _set_up_worker(level: str, labels: Mapping[str, str]) -> None:
    if not _is_set_up_by_others():
        sealed = {**labels, _SEAL: os.environ[SEAL]} if SEAL in os.environ else labels
        _install(Formatter(is_json=True, labels=sealed, redact=Redactor()), level)
    # Two threads copy the two to the JVM's standard error, so printed text could end up in the middle of a log line.
    sys.stdout = sys.stderr


def _is_set_up_by_others() -> bool:
    return any(not isinstance(handler.formatter, Formatter) for handler in logging.getLogger().handlers)


def _install(formatter: Formatter, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]  # replaces the handler of an earlier application, which has other labels
    root.setLevel(level)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every call
    logging.captureWarnings(True)


def pass_on(line: str) -> None:
    """Log a line that a worker or the JVM wrote as a record of this process; other text becomes an event."""
    found = _parsed(line)
    if found is not None:
        record = _record(found)
        logger = _logger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    elif any(isinstance(handler.formatter, Formatter) for handler in logging.getLogger().handlers):
        _output.info("%s", line)
    else:
        with suppress(OSError, ValueError):  # standard error is closed
            sys.stderr.write(f"{line}\n")


def _parsed(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if SEAL not in os.environ or found.pop(_SEAL, "") != os.environ[SEAL]:
        return None  # whoever has printed it, it is no log line
    texts = (found.get(name) for name in ("timestamp", "level", "logger", "event"))
    return found if all(isinstance(text, str) for text in texts) else None


def _record(found: dict[str, Any]) -> logging.LogRecord:
    level = logging.getLevelName(found.pop("level").upper())
    level = level if isinstance(level, int) else logging.INFO
    record = logging.LogRecord(found.pop("logger"), level, "", 0, "%s", (found.pop("event"),), None)
    with suppress(ValueError):
        record.created = datetime.fromisoformat(found.pop("timestamp").replace("Z", "+00:00")).timestamp()
    if isinstance(exception := found.get("exception"), str):
        record.exc_text = exception  # where other formatters look for it
    record.__dict__.update({name: value for name, value in found.items() if name not in _RECORD})
    return record


def _logger(name: str) -> logging.Logger:
    """Return the logger of that name if this process has it: loggers are never removed, so a line must not create one."""
    logger = logging.root.manager.loggerDict.get(name)
    return logger if isinstance(logger, logging.Logger) else logging.getLogger()


def _as_json(event: object, **_: object) -> str:
    return orjson.dumps(event).decode()
