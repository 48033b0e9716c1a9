"""Dead letters that are replayed while replays and the application are killed."""

from __future__ import annotations

import random

from verification.chaos.application import Part
from verification.chaos.replays import ReplayTrial
from verification.chaos.rows.row import Row
from verification.chaos.trial import FIRE_S, Conditions

POINTS = ("replay.before_commit", "replay.after_commit")
LETTERS = 700
KILLS_AT_POINTS = 8
KILLS_AT_RANDOM = 8
APPLICATION_KILLS = (2, 5)
"""The replays before which the application is killed too."""


def replayed_under_kills(trial: ReplayTrial) -> None:
    """A broken application writes letters, is killed, is fixed; then replays are killed repeatedly, and the application too."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    trial.kill_at("barrier.after_commit:9:kill")
    trial.come_back()
    trial.tend("there are enough letters", lambda: trial.letters_written() >= LETTERS, FIRE_S)
    trial.fix()
    for number in range(KILLS_AT_POINTS):
        if number in APPLICATION_KILLS:
            trial.kill(chooser.choice((Part.DRIVER, Part.JVM, Part.ALL)))
        trial.replay_killed_at(f"{POINTS[number % 2]}:{chooser.randrange(1, 9)}:kill")
        if number in APPLICATION_KILLS:
            trial.check_cut()
            trial.come_back()
    for _ in range(KILLS_AT_RANDOM):
        trial.replay_killed_after(chooser.uniform(0, 0.3))
    trial.replay_twice_at_once()
    trial.replay_all()
    trial.check_replays()
    trial.finish()


def _row(name: str, broken: str) -> Row:
    conditions = Conditions(on_error="dead_letter", settings={"CHAOS_BROKEN": broken})
    return Row(name, replayed_under_kills, conditions, trial=ReplayTrial)


ROWS = (_row("dlq-replay", "payments"), _row("dlq-replay-into-nodes", "totals"))
