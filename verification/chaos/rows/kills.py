"""SIGKILL at every fault point and at random moments, and crashes that the application itself survives."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import partial

from verification.chaos.application import Part
from verification.chaos.load import POISONS
from verification.chaos.rows.row import FULL, LOCAL, QUICK, Row
from verification.chaos.trial import FIRE_S, Conditions, Trial

TIMES = 3
WAYS = (
    {"PENSTOCK_SMALL_EPOCH_RECORDS": "2000"},
    {"PENSTOCK_SMALL_EPOCH_RECORDS": "0"},
    {"PENSTOCK_SMALL_EPOCH_RECORDS": "40", "PENSTOCK_ENGINE": "local"},
)
"""One slot runs all lanes of every epoch, or each slot its own, on Spark if a row names no engine; the local engine does both."""

PER_EPOCH = (
    "epoch.before_job",
    "epoch.after_job",
    "barrier.before_begin",
    "barrier.after_begin",
    "barrier.mid_produce",
    "barrier.after_produce",
    "barrier.after_offsets",
    "barrier.before_commit",
    "barrier.after_commit",
)
PER_LANE = ("lane.before_write", "lane.after_write")
PER_SECTION = ("serial.before_write", "serial.between_lanes")
AT_THE_START = ("kafka.before_init", "kafka.after_init", "restore.before_mark")
RANDOM_KILLS = 60
LOCAL_ENGINE = Conditions(settings={"PENSTOCK_ENGINE": "local"})
LOCAL_ROWS, LOCAL_KILLS, SOME_LOCAL_KILLS = 20, 100, 20
"""Without a JVM, an application is back after a second or two, and can be killed thousands of times. In several rows, because the
oracle compares everything that a row has sent."""
ENGINE_CHANGES = 10


def in_every_epoch(point: str, trial: Trial) -> None:
    """Kill at a point that every epoch passes."""
    for hit, way in zip(_hits(trial, 3, 16), WAYS, strict=True):
        trial.kill_at(f"{point}:{hit}:kill", **way)
    trial.finish()


def in_every_lane(point: str, trial: Trial) -> None:
    """Kill at a point that every lane passes in every stage of an epoch."""
    for hit, way in zip(_hits(trial, 9, 60), WAYS, strict=True):
        trial.kill_at(f"{point}:{hit}:kill", **way)
    trial.finish()


def at_the_start(point: str, trial: Trial) -> None:
    """Kill at a point that every start passes: three times in a row before anything is processed."""
    trial.start()
    trial.see_progress()
    trial.application.kill(Part.ALL)
    trial.application.wait(10)
    for _ in range(TIMES):
        trial.kill_at(f"{point}:1:kill")
    trial.finish()


def in_a_retried_task(trial: Trial) -> None:
    """A request fails after its lane has written; the next attempt is killed before it rolls that back."""
    for hit, way in zip(_hits(trial, 9, 60), WAYS, strict=True):
        trial.kill_at(f"lane.after_write:{hit}:raise,lane.before_roll_back:1:kill", **way)
    trial.finish()


def while_rolling_back(trial: Trial) -> None:
    """A start finds lanes that are ahead of Kafka, and is killed before it rolls them back."""
    for hit, way in zip(_hits(trial, 3, 16), WAYS, strict=True):
        trial.kill_at(f"barrier.before_commit:{hit}:kill", **way)
        trial.kill_at("restore.before_roll_back:1:kill")
    trial.finish()


def while_restoring(trial: Trial) -> None:
    """A start finds no files, and is killed while it rebuilds them."""
    trial.start()
    trial.see_progress()
    trial.application.kill(Part.ALL)
    trial.application.wait(10)
    for chunk in (1, 3, 6):
        trial.files.delete()
        trial.kill_at(f"restore.chunk:{chunk}:kill")
    trial.finish()


def one_after_the_other(trial: Trial) -> None:
    """Kill at every third point once, in one row: the seed decides which. One record in a hundred is bad, and a dead letter."""
    chooser = random.Random(trial.world.seed)
    third = slice(trial.world.seed % 3, None, 3)
    for point in (*PER_EPOCH, *PER_LANE, *PER_SECTION)[third]:
        hit = chooser.randrange(5, 24) if point in PER_LANE else chooser.randrange(3, 9)
        trial.kill_at(f"{point}:{hit}:kill", **chooser.choice(WAYS))
    trial.kill_at("restore.before_roll_back:1:kill")
    for point in AT_THE_START[third]:
        trial.kill_at(f"{point}:1:kill")
    trial.files.delete()
    trial.kill_at("restore.chunk:2:kill")
    trial.kill_at(f"lane.after_write:{chooser.randrange(9, 24)}:raise,lane.before_roll_back:1:kill")
    trial.finish()


def at_random_moments(kills: int, trial: Trial) -> None:
    """Kill the driver, the JVM, or everything: half the time at any moment of a start, half the time soon after progress."""
    chooser = random.Random(trial.world.seed)
    for number in range(kills):
        way = chooser.choice(WAYS)
        if number % 2:
            trial.come_back(**way)
            time.sleep(chooser.uniform(0, 2))
        else:
            trial.start("", Part.DRIVER, **way)
            time.sleep(chooser.uniform(0.2, 4 if "PENSTOCK_ENGINE" in way else 14))
        trial.kill(chooser.choice((Part.DRIVER, Part.DRIVER, Part.ALL, Part.JVM)))
        if number % 10 == 9:  # the first may be killed before it has created its topics
            trial.check_cut()
    trial.finish()


def again_and_again(kills: int, trial: Trial) -> None:
    """Kill workers while the application continues, then the driver or everything; half the time before there is progress."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    for number in itertools.count():
        way = chooser.choice(WAYS[:2])
        if number % 2:
            trial.come_back(**way)
        else:
            trial.start("", Part.DRIVER, **way)
        for _ in range(chooser.randrange(4)):
            time.sleep(chooser.uniform(0, 0.5))
            trial.kill_worker()
        time.sleep(chooser.uniform(0, 1))
        trial.kill(chooser.choice((Part.DRIVER, Part.DRIVER, Part.ALL)))
        if number % 10 == 9:
            trial.check_cut()
        if trial.kills >= kills:
            break
    trial.finish()


def engines_in_turn(trial: Trial) -> None:
    """Change the engine at every start, after a stop and after a SIGKILL."""
    for number in range(ENGINE_CHANGES + 1):
        trial.come_back(**(WAYS[2] if number % 2 else WAYS[number // 2 % 2]))
        if number // 2 % 2:
            trial.kill(Part.ALL)
        else:
            trial.application.stop()
        trial.check_cut()
    trial.finish()


def worker_in_mid_lane(trial: Trial) -> None:
    """A worker dies in the middle of a lane's epoch; another one takes its place, and the application continues."""
    for point, way in (("lane.before_write", WAYS[0]), ("lane.after_write", WAYS[1]), ("lane.after_write", WAYS[2])):
        trial.start(f"{point}:13:kill", Part.WORKER, **way)
        with trial.hurting():
            trial.tend(f"{point} fires", lambda: trial.application.fired > 0, FIRE_S)
            trial.kills += 1
        for _ in range(3):
            with trial.hurting():
                trial.tend("there is a worker to kill", lambda: trial.application.kill(Part.WORKER), FIRE_S)
                trial.kills += 1
        trial.application.stop()
    trial.finish()


def task_retried(trial: Trial) -> None:
    """Requests fail before and after their lane has written, and the epoch is run again."""
    for way in WAYS:
        trial.start("lane.before_write:11:raise,lane.after_write:17:raise", Part.DRIVER, **way)
        with trial.hurting():
            trial.tend("both points fire", lambda: trial.application.fired == 2, FIRE_S)
        trial.application.stop()
    trial.finish()


def _hits(trial: Trial, low: int, high: int) -> list[int]:
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    return [chooser.randrange(low, high) for _ in range(TIMES)]


def _rows(points: tuple[str, ...], run: Callable[[str, Trial], None]) -> list[Row]:
    return [Row(point, partial(run, point)) for point in points]


ROWS = (
    *_rows(PER_EPOCH, in_every_epoch),
    *_rows(PER_LANE, in_every_lane),
    *_rows(PER_SECTION, in_every_epoch),
    *_rows(AT_THE_START, at_the_start),
    Row("lane.before_roll_back", in_a_retried_task),
    Row("restore.before_roll_back", while_rolling_back),
    Row("restore.chunk", while_restoring),
    Row(
        "every-third-point",
        one_after_the_other,
        Conditions(on_error="dead_letter", poison=POISONS),
        campaigns=(QUICK,),
    ),
    Row("random-kills", partial(at_random_moments, RANDOM_KILLS)),
    Row("random-kills-rocksdb", partial(at_random_moments, 10), Conditions(settings={"PENSTOCK_STORE_ENGINE": "rocksdb"})),
    *(
        Row(f"local-kills-{number:02}", partial(again_and_again, LOCAL_KILLS), LOCAL_ENGINE, campaigns=(LOCAL,))
        for number in range(1, LOCAL_ROWS + 1)
    ),
    Row("local-kills", partial(again_and_again, SOME_LOCAL_KILLS), LOCAL_ENGINE),
    Row("engines-in-turn", engines_in_turn, campaigns=(FULL, LOCAL)),
    Row("worker-killed", worker_in_mid_lane),
    Row("task-retried", task_retried),
)
