"""Visits to a web shop: clicks of a visitor that are at most 30 minutes apart, complete in spite of phones that report late.

A click may be two minutes out of order, and still counts. Later ones go to a topic of their own, and are counted by platform.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from penstock import (
    App,
    EmitStrategy,
    KStream,
    StreamsBuilder,
    Windowed,
    bounded_disorder,
    dead_letter,
    on_record,
    session,
)


@dataclass(frozen=True)
class Click:
    page: str
    platform: str


@dataclass(frozen=True)
class Step:
    at: int
    page: str


@dataclass(frozen=True)
class Visit:
    pages: int
    seconds: float
    entry: str
    exit: str
    is_purchase: bool


def joined(_: str, one: list[Step], other: list[Step]) -> list[Step]:
    """The steps of two sessions that a click between them has joined."""
    return sorted([*one, *other], key=attrgetter("at"))


def with_step(visitor: str, step: Step, steps: list[Step]) -> list[Step]:
    return joined(visitor, steps, [step])


def visit(steps: list[Step]) -> Visit:
    seconds = (steps[-1].at - steps[0].at) / 1000
    is_purchase = any(step.page == "/thanks" for step in steps)
    return Visit(len(steps), seconds, steps[0].page, steps[-1].page, is_purchase)


def visitor_of(windowed: Windowed[str], _: list[Step]) -> str:
    return windowed.key


builder = StreamsBuilder()
clicks: KStream[str, Click] = builder.stream(
    "clicks",
    key=str,
    value=Click,
    watermark=bounded_disorder("2m", idle="1m", follow_wall_clock=True),
    late=dead_letter("clicks-late"),
)
visits = (
    clicks.map_values(on_record(lambda record: Step(record.timestamp, record.value.page)), value=Step)
    .group_by_key()
    .windowed_by(session("30m"))
    .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    .aggregate(list, with_step, joined, value=list[Step], store="visits")
)
visits.to_stream(visitor_of, key=str).map_values(visit).to("visits", value=Visit)
late = clicks.late_records().group_by(lambda _, click: click.platform, key=str).count(store="late-by-platform")
late.to_stream().to("late-by-platform", value=int)
app = App("session-analytics", builder.build())

if __name__ == "__main__":
    app.run()
