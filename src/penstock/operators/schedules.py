"""A scheduled source: a wall-clock timer that re-registers itself, in the shard that owns the schedule's name."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.hosted import TimerKind
from penstock.operators.timers import NodeTimers
from penstock.processor import Host, Operator
from penstock.records import NO_HEADERS, Process
from penstock.serdes import Int64, Serde, String
from penstock.state import TimerEntry, timer_id
from penstock.timing.schedules import Misfire, Schedule

LATE_MS = 60_000
"""With `skip`, a tick that is later than this is dropped."""

MOST_AT_ONCE = 1_000
"""With `all`, at most this many missed ticks are sent in one epoch; the rest follow in the next."""

MISSED = "missed tick"

TICK_KEY: Serde[str] = String()
TICK_VALUE: Serde[int] = Int64()


@dataclass(frozen=True, slots=True)
class Ticks(Operator):
    """Sends a record whenever a schedule is due. The next tick is a timer named after the schedule's expression.

    A timer with another expression belongs to an earlier version of the schedule: it is deleted, and the schedule starts now.
    """

    name: str
    schedule: Schedule
    timers: str

    def bind(self, host: Host, forward: Process) -> Process:
        schedule, name, key = self.schedule, self.name, TICK_KEY.serialize(self.name)
        timer = timer_id(key, schedule.expression)
        made_up = 0

        def fire(entry: TimerEntry, now: int) -> None:
            nonlocal made_up
            due = entry.time
            if schedule.misfire is Misfire.ALL:
                following = schedule.following(due)
                made_up += following <= now
                if made_up == MOST_AT_ONCE:
                    queue.hold()
                    made_up = 0
            else:
                due = schedule.latest(due, now)
                following = schedule.following(due)
            queue.store.register(timer, TimerKind.PROCESSING_TIME, following)
            if schedule.misfire is Misfire.SKIP and now - due > LATE_MS:
                host.dropped(MISSED)
            else:
                forward(name, due, due, NO_HEADERS)

        queue = NodeTimers(host, self.timers, fire)
        host.time.add_timers(queue)

        def start() -> None:
            if not host.owns(key):
                return
            for entry in list(queue.store.of_key(key)):
                if entry.name != schedule.expression:
                    queue.store.delete(timer_id(key, entry.name))
            if queue.store.get(timer) is None:
                queue.store.register(timer, TimerKind.PROCESSING_TIME, schedule.first(host.time.wall_clock()))

        host.on_start(start)
        return forward
