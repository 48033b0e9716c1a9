"""The application whose state is kept for every release, and the form in which it is kept.

The topology must not change: state of earlier releases belongs to it. A new kind of store gets a topology, and state, of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock import (
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Timer,
    Topology,
    key_value_store,
    session,
    tumbling,
    until_window_closes,
)
from penstock.version import __version__

HERE = Path(__file__).parent
LANES = 2


@dataclass
class Total:
    """The value of an aggregate: JSON of a dataclass."""

    records: int = 0
    longest: int = 0


class Remind(Processor[str, str, str, str]):
    """Keeps the last value of a key, and sends it again when the key has been quiet for a second."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.last = context.store("last")

    def process(self, record: Record[str, str]) -> None:
        self.last[record.key] = record.value
        self.context.timers.event_time(after="1s", name="quiet")

    def on_timer(self, timer: Timer) -> None:
        self.context.forward(timer.record(f"{self.last[timer.key]}, then nothing"))


def kept() -> Topology:
    """An exchange, and every kind of store that one source can fill: tables, windows, sessions, a join, timers, held results."""
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("last", value=str))
    lines = builder.stream("in", value=str)
    lines.flat_map_values(str.split).group_by(_value).count(store="words").to_stream().to("counts", value=int)
    by_key = lines.group_by_key()
    by_key.aggregate(Total, _add, store=Store("totals", value=Total)).to_stream().to("totals", value=Total)
    windows = by_key.windowed_by(tumbling("1s", grace="500ms")).count(store="windows")
    windows.suppress(until_window_closes(name="held")).to_stream(_flat, key=str).to("final", value=int)
    by_key.windowed_by(session("300ms", grace="2s")).count(store="sessions").to_stream(_flat, key=str).to("visits", value=int)
    long = lines.filter(_is_long)
    lines.outer_join(long, _both, within="200ms", grace="100ms", value=str, other_value=str, store_name="pairs").to(
        "pairs", value=str
    )
    lines.process(Remind, stores=["last"], name="remind").to("reminders", key=str, value=str)
    return builder.build()


def _value(key: str, value: str) -> str:
    return value


def _add(key: str, line: str, total: Total) -> Total:
    return Total(total.records + 1, max(total.longest, len(line)))


def _flat(key: Any, value: Any) -> str:
    return f"{key.key}@{key.start}"


def _is_long(key: str, line: str) -> bool:
    return " " in line


def _both(left: str | None, right: str | None) -> str:
    return f"{left}/{right}"


# ---- what is kept -----------------------------------------------------------------------------------------------------


class Kafka(msgspec.Struct, frozen=True):
    """What the brokers had: the changelogs with gaps where transactions end, their ids, and the last commit of topic `in`."""

    format: int
    """The format of the lanes' files."""
    now_ms: int
    ids: dict[str, str]
    logs: dict[str, list[tuple[bytes, bytes | None] | None]]
    """By `topic/partition`."""
    offset: int
    commit: str


class Continued(msgspec.Struct, frozen=True):
    """The next records, and what the application has sent for them."""

    records: list[tuple[bytes | None, bytes | None, int]]
    sent: list[tuple[str, bytes | None, bytes | None, int]]


def release() -> str:
    """The release that this code will be."""
    return re.sub(r"\.dev\d+$", "", __version__)
