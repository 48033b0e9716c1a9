"""Accidents with the files: missing, damaged or outdated stores, and temporary files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial

from verification.chaos.application import Part
from verification.chaos.rows.row import Row
from verification.chaos.trial import Conditions, Trial

ANY_FAILURE = frozenset(range(1, 256))


def after_an_accident(accident: Callable[[Trial], None], trial: Trial) -> None:
    """The application is killed, its files are damaged, it starts again; then the same after a clean stop."""
    trial.start()
    trial.see_progress()
    for end in (lambda: trial.kill(Part.ALL), trial.application.stop):
        end()
        accident(trial)
        trial.happened()
        trial.come_back()
    trial.finish()


def scribble(trial: Trial) -> None:
    """Random bytes change."""
    trial.files.scribble(random.Random(trial.world.seed))


def change_sums(trial: Trial) -> None:
    """Every sum changes, in pages that stay readable."""
    if not trial.files.change_sums():
        trial.stuck("there are sums to change", "none in the files")


def from_a_backup(trial: Trial) -> None:
    """Lanes of an older epoch come back among newer files; then a whole directory."""
    trial.start()
    trial.see_progress()
    trial.application.stop()
    backup = trial.directory / "backup"
    trial.files.copy_to(backup)
    trial.come_back()
    trial.see_progress()
    trial.kill(Part.ALL)
    trial.files.replace_by(backup)
    trial.happened()
    trial.come_back()
    trial.application.stop()
    trial.files.delete()
    shutil.copytree(backup, trial.files.state_dir)
    trial.happened()
    trial.come_back()
    trial.finish()


def scratch_deleted(trial: Trial) -> None:
    """Spark's temporary files, and the socket at which slots register, are deleted while it runs."""
    trial.start()
    trial.see_progress()
    for _ in range(2):
        with trial.hurting():
            for path in trial.application.scratch.iterdir():
                shutil.rmtree(path, ignore_errors=True)
    trial.finish()


ROWS = (
    Row("stores-deleted", partial(after_an_accident, lambda trial: trial.files.delete())),
    Row("stores-deleted-in-one-lane", partial(after_an_accident, lambda trial: trial.files.delete_a_lane())),
    Row("stores-scribbled", partial(after_an_accident, scribble)),
    Row("stores-changed", partial(after_an_accident, change_sums)),
    Row("stores-truncated", partial(after_an_accident, lambda trial: trial.files.truncate())),
    Row("stores-from-a-backup", from_a_backup),
    Row("scratch-deleted", scratch_deleted, Conditions(exits=ANY_FAILURE)),
)
