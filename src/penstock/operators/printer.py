"""`print`: records as text, to inspect a stream during development."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import FAILURES
from penstock.escapes import on_one_line
from penstock.processor import Host, Operator
from penstock.records import Headers, Process


@dataclass(frozen=True, slots=True)
class Print(Operator):
    """Writes `[label]: key, value` to standard output or appends it to a file, each record as one line."""

    label: str
    file: str | None = None
    mapper: Callable[[Any, Any], str] | None = None

    def bind(self, host: Host, forward: Process) -> Process:
        label, mapper, failed = self.label, self.mapper, host.failed
        path = Path(self.file) if self.file is not None else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                text = mapper(key, value) if mapper is not None else f"{_text(key)}, {_text(value)}"
                line = f"[{label}]: {on_one_line(text)}\n"
                if path is None:
                    sys.stdout.write(line)
                else:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(line)
            except FAILURES as error:
                failed(error, key)

        return process


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
