"""Late records, right below their source: what becomes of them, and a stream of their own.

A record is late if its event time is before the watermark that its partition had told when it came, or before the application's
watermark as of the last barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import LateRecordError
from penstock.handlers import ErrorHandler
from penstock.processor import Host, Operator
from penstock.records import Headers, Process


@dataclass(frozen=True, slots=True)
class LatePolicy(Operator):
    """Lets records pass that are in time, and does with the others what the handler says."""

    is_repeatable: ClassVar[bool] = True
    handler: ErrorHandler

    def bind(self, host: Host, forward: Process) -> Process:
        clock, late, handler = host.clock(host.node), host.late, self.handler

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            reached = clock.time
            if timestamp >= reached:
                forward(key, value, timestamp, headers)
            else:
                late(handler, LateRecordError(f"its time is {timestamp}, but no record before {reached} was expected"), key)

        return process


@dataclass(frozen=True, slots=True)
class OnlyLate(Operator):
    """Lets records pass that are late."""

    def bind(self, host: Host, forward: Process) -> Process:
        clock = host.clock(host.node)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp < clock.time:
                forward(key, value, timestamp, headers)

        return process
