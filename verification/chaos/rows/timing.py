"""Kills while something is pending: timers of both clocks, schedules, calls in flight."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from verification.chaos.application import Part
from verification.chaos.rows.kills import WAYS
from verification.chaos.rows.row import FULL, QUICK, Row
from verification.chaos.trial import FIRE_S, REST_S, Conditions
from verification.chaos.waiting.forms import CALL, DELAY_VARIABLE
from verification.chaos.waiting.trial import WaitingTrial

TIMERS = 10_000
AT_TIMERS = ("lane.before_timers", "lane.after_timers")
DOWN_S = 8
KILLS = 5
FEW_RECORDS = {"PENSTOCK_MAX_EPOCH_RECORDS": "2000"}
MANY_AT_ONCE = Conditions(settings={DELAY_VARIABLE: "30000", **FEW_RECORDS})
"""A delay long enough that all timers are registered before the first is due; they then fire over the same period."""


def around_timers(point: str, trial: WaitingTrial) -> None:
    """Kill just before, or just after, the timers of a lane have fired."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    for way in WAYS:
        trial.kill_at(f"{point}:{chooser.randrange(20, 120)}:kill", **way)
    trial.finish()


def many_timers(trial: WaitingTrial) -> None:
    """Ten thousand timers are pending, half of them on each clock; they fire while the application is killed repeatedly."""
    trial.start()
    trial.see_progress()
    trial.load.pause()
    trial.load.send(TIMERS // 2)
    ends = trial.observer.input_ends()
    trial.tend("all timers are registered", lambda: trial.observer.offsets() == ends, REST_S)
    trial.kill(Part.ALL)
    pending = trial.pending()
    if pending < TIMERS:
        trial.violate("weak", "row", f"only {pending} timers were pending at once, of {TIMERS}")
    trial.check_cut()
    trial.load.go_on()
    chooser = random.Random(trial.world.seed)
    for number, point in enumerate((*AT_TIMERS, "", "barrier.after_commit", "", "lane.after_write")):
        if point:
            trial.kill_at(f"{point}:{chooser.randrange(8, 40)}:kill", **chooser.choice(WAYS))
            continue
        trial.come_back(**chooser.choice(WAYS))
        time.sleep(chooser.uniform(0, 3))
        trial.kill((Part.DRIVER, Part.ALL, Part.JVM)[number % 3])
        trial.check_cut()
    trial.finish()


def down_for_a_while(trial: WaitingTrial) -> None:
    """The application is down while ticks are due, killed or stopped; each schedule then handles its misfires."""
    trial.start()
    trial.see_progress()
    for end in (lambda: trial.kill(Part.ALL), trial.application.stop, lambda: trial.kill(Part.DRIVER)):
        end()
        trial.check_cut()
        time.sleep(DOWN_S)
        trial.happened()
        trial.come_back()
    trial.kill(Part.JVM)
    trial.kill_at("barrier.before_commit:9:kill")
    trial.finish()


def calls_under_way(trial: WaitingTrial) -> None:
    """Calls are in flight: kill the driver, then a worker, which is replaced, then any part at random moments."""
    chooser = random.Random(trial.world.seed)
    for way in WAYS:
        trial.kill_at(f"{CALL}:{chooser.randrange(300, 2000)}:kill", **way)
    for way in WAYS[1:]:
        trial.start(f"{CALL}:{chooser.randrange(300, 1500)}:kill", Part.WORKER, **way)
        with trial.hurting():
            trial.tend("a worker dies in a call", lambda: trial.application.fired > 0, FIRE_S)
            trial.kills += 1
        trial.application.stop()
    for number in range(KILLS):
        trial.come_back(**WAYS[number % len(WAYS)])
        time.sleep(chooser.uniform(0, 2))
        trial.kill(chooser.choice((Part.DRIVER, Part.ALL, Part.JVM)))
        trial.check_cut()
    trial.finish()


def a_little_of_each(trial: WaitingTrial) -> None:
    """Kill in a call, with timers pending; schedules continue."""
    trial.kill_at(f"{CALL}:300:kill")
    trial.finish()


def _row(
    name: str,
    run: Callable[[WaitingTrial], None],
    conditions: Conditions = Conditions(settings=FEW_RECORDS),  # noqa: B008 - frozen
    campaigns: tuple[str, ...] = (FULL,),
) -> Row:
    return Row(name, run, conditions, campaigns, WaitingTrial)


ROWS = (
    *(_row(point, partial(around_timers, point)) for point in AT_TIMERS),
    _row("timers-ten-thousand", many_timers, MANY_AT_ONCE),
    _row("schedules-down", down_for_a_while),
    _row("calls-under-way", calls_under_way),
    _row("waiting", a_little_of_each, campaigns=(QUICK,)),
)
