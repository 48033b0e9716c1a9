"""Several instances, fewer and more lanes."""

from __future__ import annotations

import signal
from functools import partial

from verification.chaos.application import Application, Part
from verification.chaos.rows.row import Row
from verification.chaos.trial import Conditions, Trial
from verification.harness.processes import HarnessError

FENCED = 20
FENCE_S = 60


def second_instance(shares_files: bool, trial: Trial) -> None:
    """A second instance starts, elsewhere or on the same files: the first is fenced, logs that and ends; the second continues."""
    trial.start()
    trial.see_progress()
    first = trial.application
    files = {"PENSTOCK_STATE_DIR": str(first.state_dir)} if shares_files else {}
    trial.application = trial.instance("second", **files)
    with trial.hurting():
        trial.start()
    _must_be_fenced(trial, first)
    trial.finish()


def sleeper_wakes_up(trial: Trial) -> None:
    """An instance is suspended; a second one takes over; then the first resumes."""
    trial.start()
    trial.see_progress()
    first = trial.application
    first.signal(Part.ALL, signal.SIGSTOP)
    trial.application = trial.instance("second")
    with trial.hurting():
        trial.start()
    first.signal(Part.ALL, signal.SIGCONT)
    _must_be_fenced(trial, first)
    trial.see_progress()
    trial.finish()


def _must_be_fenced(trial: Trial, first: Application) -> None:
    try:
        code = first.wait(FENCE_S)
    except HarnessError:
        trial.violate("unfenced", "first instance", f"still runs {FENCE_S} s after the second one took over")
        return
    if code != FENCED:
        trial.violate("unfenced", "first instance", f"ended with {code}, not with {FENCED}")
    said = first.log.read_text(errors="replace")
    if "another instance" not in said.lower():
        trial.violate("unfenced", "first instance", f"does not log that another instance has taken over; see {first.log}")


def lanes_come_and_go(trial: Trial) -> None:
    """Two lanes, five, one, and two again; after a kill, a stop and a kill."""
    trial.start(PENSTOCK_LANES="2")
    trial.see_progress()
    trial.kill(Part.ALL)
    trial.come_back(PENSTOCK_LANES="5", PENSTOCK_SMALL_EPOCH_RECORDS="0")
    trial.happened()
    trial.application.stop()
    trial.come_back(PENSTOCK_LANES="1")
    trial.happened()
    trial.kill(Part.DRIVER)
    trial.finish()


ROWS = (
    Row("second-instance", partial(second_instance, False)),
    Row("second-instance-same-files", partial(second_instance, True)),
    Row("sleeper-wakes-up", sleeper_wakes_up, Conditions(settings={"PENSTOCK_TRANSACTION_TIMEOUT": "10s"})),
    Row("lanes-2-5-1", lanes_come_and_go),
)
