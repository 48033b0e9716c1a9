"""Late records, directly below their source: the policy for them, and a separate stream of them.

A record is late if its event time is before its partition's watermark when it arrived, or before the application's watermark
as of the last commit.
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
    """Forwards records that are on time, and applies the handler to late ones."""

    is_repeatable: ClassVar[bool] = True
    handler: ErrorHandler

    def bind(self, host: Host, forward: Process) -> Process:
        clock, late, handler = host.time.clock(host.node), host.late, self.handler

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            reached = clock.time
            if timestamp >= reached:
                forward(key, value, timestamp, headers)
            else:
                late(handler, LateRecordError(f"The timestamp {timestamp} is before the watermark {reached}."), key)

        return process


@dataclass(frozen=True, slots=True)
class OnlyLate(Operator):
    """Forwards late records only."""

    def bind(self, host: Host, forward: Process) -> Process:
        clock = host.time.clock(host.node)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp < clock.time:
                forward(key, value, timestamp, headers)

        return process
