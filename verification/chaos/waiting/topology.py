"""The application with pending work: two timers and a call for each payment, and schedules.

Spark's workers find its functions by name, so they import this module too, and with it that of the payments'
application, which turns a guard off if the campaign requests it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from penstock import (
    App,
    FixedKeyProcessor,
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Timer,
    Topology,
    faults,
    monotonous,
)
from penstock.operators import schedules
from verification.chaos.topology import handler
from verification.chaos.waiting.forms import (
    CALL,
    DELAY_MS,
    DELAY_VARIABLE,
    EVENT,
    EVERY_MS,
    LATE_MS,
    PROCESSING,
    TICKS,
    WaitingTopics,
    answer_to,
    due_of,
)

LONGEST_CALL_MS = 12
if "CHAOS_APPLICATION_ID" in os.environ:  # the driver and every worker of the campaign's application, and no test
    schedules.LATE_MS = LATE_MS


class Reminding(Processor[str, dict[str, Any], str, dict[str, Any]]):
    """One timer of each clock for every payment; their output has the time."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Register both."""
        number, delay = record.value["number"], int(os.environ.get(DELAY_VARIABLE, DELAY_MS))
        timers = self.context.timers
        timers.event_time(at=due_of(EVENT, number, record.timestamp, delay), name=f"{EVENT}{number}")
        timers.processing_time(at=due_of(PROCESSING, number, record.timestamp, delay), name=f"{PROCESSING}{number}")

    def on_timer(self, timer: Timer) -> None:
        """Send its name, its time, and the current time."""
        value = {"timer": timer.name, "due": timer.time, "at": self.context.current_system_time_ms()}
        self.context.forward(timer.record(value))


class Stamping(FixedKeyProcessor[str, int, dict[str, int]]):
    """Adds the current time to a tick."""

    def process(self, record: Record[str, int]) -> None:
        """Forward both times."""
        self.context.forward(record.with_value({"due": record.value, "at": self.context.current_system_time_ms()}))


async def answered(payment: dict[str, Any]) -> dict[str, Any]:
    """A payment with the answer of another system, which takes longer for some than for others."""
    await asyncio.sleep(payment["number"] * 37 % LONGEST_CALL_MS / 1000)
    faults.point(CALL)
    return {**payment, "answer": answer_to(payment["number"])}


def build(topics: WaitingTopics) -> Topology:
    """Build the topology. Event time follows the payments' timestamps, and the wall clock when there are none."""
    builder = StreamsBuilder()
    watermark = monotonous(idle="2s", follow_wall_clock=True)
    payments = builder.stream(topics.input, key=str, value=dict, watermark=watermark)
    payments.process(Reminding, name="reminding", key=str, value=dict).to(topics.fired, value=dict)
    payments.map_values_async(answered, concurrency=16, value=dict).to(topics.echo, value=dict)
    for misfire, every_ms in EVERY_MS.items():
        ticks = builder.schedule(misfire, every=every_ms, misfire=misfire).process_values(Stamping, value=dict)
        ticks.to(topics.ticks, value=dict)
        ticks.group_by_key(value=dict).count(store=Store(f"{TICKS}-{misfire}", caching=False))
    return builder.build()


def app(application_id: str, on_error: str) -> App:
    """The application."""
    topics = WaitingTopics(application_id)
    decision = handler(on_error, topics)
    return App(application_id, build(topics), deserialization_errors=decision, processing_errors=decision)
