"""What the application depends on fails: the broker and the way to it."""

from __future__ import annotations

import time
from functools import partial

from chaos.rows.row import Row
from chaos.trial import Conditions, Trial

COMMIT, BROKER = 21, 22
GETS_OVER_OR_SAYS_SO = Conditions(exits=frozenset({COMMIT, BROKER}))
BROKER_DOWN_S = 3


def broker_killed(trial: Trial) -> None:
    """The broker is killed and starts again with what it has on disk; three times."""
    trial.start()
    trial.see_progress()
    for _ in range(3):
        with trial.hurting():
            trial.world.broker.kill()
            time.sleep(BROKER_DOWN_S)
            trial.world.broker.start()
    trial.finish()


def broker_paused(seconds: float, trial: Trial) -> None:
    """The broker hangs with all connections open."""
    trial.start()
    trial.see_progress()
    with trial.hurting():
        trial.world.broker.pause()
        time.sleep(seconds)
        trial.world.broker.resume()
    trial.finish()


def connection_cut(seconds: float, trial: Trial) -> None:
    """Every connection of the application is closed, and new ones are refused for a while."""
    trial.start()
    trial.see_progress()
    with trial.hurting():
        trial.world.proxy.cut()
        time.sleep(seconds)
        trial.world.proxy.restore()
    trial.finish()


def packets_lost(seconds: float, trial: Trial) -> None:
    """Connections stay open and nothing comes through, in either direction."""
    trial.start()
    trial.see_progress()
    with trial.hurting():
        trial.world.proxy.hang()
        time.sleep(seconds)
        trial.world.proxy.restore()
    trial.finish()


ROWS = (
    Row("broker-killed", broker_killed, GETS_OVER_OR_SAYS_SO),
    Row("broker-paused-45s", partial(broker_paused, 45), GETS_OVER_OR_SAYS_SO),
    Row("connection-cut-5s", partial(connection_cut, 5), GETS_OVER_OR_SAYS_SO),
    Row("connection-cut-90s", partial(connection_cut, 90), GETS_OVER_OR_SAYS_SO),
    Row("packets-lost-30s", partial(packets_lost, 30), GETS_OVER_OR_SAYS_SO),
)
