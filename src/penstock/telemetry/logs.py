"""Logs: one line per event, JSON for machines or text for people, the same for this process, Spark's workers and its JVM.

All modules log by Python's own `logging`; here is only how it looks, and how what other processes log comes in.
"""

from __future__ import annotations

import logging
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

from penstock.config import Config, is_secret
from penstock.telemetry.redaction import HIDDEN, Redactor, escaped

CONTEXT = ("application", "topology", "incarnation", "lane", "epoch", "phase")
"""What a line says about where it comes from, as far as that is known there."""

_FIRST = ("timestamp", "level", "logger", "event", *CONTEXT)
_INDENT = "\n    "
_RECORD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime"})

_output = logging.getLogger("penstock.output")
"""What workers and the JVM have written that is no log line: `print` in a function, a crash."""


class Formatter(ProcessorFormatter):
    """Log records as lines. `labels` are on every line that does not say otherwise."""

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
        """A value as a line may hold it: no secrets, nothing that passes itself off for a line of its own."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if is_secret(name):
            return HIDDEN
        text = escaped(self._redact(value if isinstance(value, str) else repr(value)))
        return text if self._is_json else text.replace("\n", _INDENT)


def set_up(application_id: str, config: Config | None = None) -> None:
    """Have this process log to standard error, unless somebody has set up logging already: then that is left alone.

    Without a configuration, in the form that is the default: what is wrong with the configuration has to be said, too.
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
    """What a Python worker of Spark's calls once to log as this process does; it is sent there, and so knows no secrets.

    Workers always write JSON: `pass_on` reads it again.
    """
    return partial(_set_up_worker, config.log_level, dict(labels))


def _set_up_worker(level: str, labels: Mapping[str, str]) -> None:
    if not _is_set_up_by_others():
        _install(Formatter(is_json=True, labels=labels, redact=Redactor()), level)
    # Both go to the JVM's standard error, each by a thread of its own: what is printed could come in the middle of a line.
    sys.stdout = sys.stderr


def _is_set_up_by_others() -> bool:
    return any(not isinstance(handler.formatter, Formatter) for handler in logging.getLogger().handlers)


def _install(formatter: Formatter, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]  # in place of that of an earlier application, which has other labels
    root.setLevel(level)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells about every call
    logging.captureWarnings(True)


def pass_on(line: str) -> None:
    """Let a line that a worker or the JVM has written be a log record of this process; what is none of ours goes out as it is."""
    found = _parsed(line)
    if found is not None:
        record = _record(found)
        logger = _logger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    elif any(isinstance(handler.formatter, Formatter) for handler in logging.getLogger().handlers):
        _output.info("%s", line)
    else:
        with suppress(OSError, ValueError):  # nobody is there to read it
            sys.stderr.write(f"{line}\n")


def _parsed(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    texts = (found.get(name) for name in ("timestamp", "level", "logger", "event"))
    return found if all(isinstance(text, str) for text in texts) else None


def _record(found: dict[str, Any]) -> logging.LogRecord:
    level = logging.getLevelName(found.pop("level").upper())
    level = level if isinstance(level, int) else logging.INFO
    record = logging.LogRecord(found.pop("logger"), level, "", 0, "%s", (found.pop("event"),), None)
    with suppress(ValueError):
        record.created = datetime.fromisoformat(found.pop("timestamp").replace("Z", "+00:00")).timestamp()
    if isinstance(exception := found.get("exception"), str):
        record.exc_text = exception  # where another formatter looks for it
    record.__dict__.update({name: value for name, value in found.items() if name not in _RECORD})
    return record


def _logger(name: str) -> logging.Logger:
    """The logger of that name, if this process has it: loggers are never forgotten, so none is made by what others write."""
    logger = logging.root.manager.loggerDict.get(name)
    return logger if isinstance(logger, logging.Logger) else logging.getLogger()


def _as_json(event: object, **_: object) -> str:
    return orjson.dumps(event).decode()
