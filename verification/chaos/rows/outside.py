"""Failures of what the application depends on: the broker and the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from verification.chaos.rows.row import Row
from verification.chaos.trial import Conditions, Trial, World

COMMIT, BROKER = 21, 22
GETS_OVER_OR_SAYS_SO = Conditions(exits=frozenset({COMMIT, BROKER}))
BROKER_DOWN_S = 3


def outage(harm: Callable[[World], None], mend: Callable[[World], None], seconds: float, times: int, trial: Trial) -> None:
    """Something that the application depends on fails for this long, this many times."""
    trial.start()
    trial.see_progress()
    for _ in range(times):
        with trial.hurting():
            harm(trial.world)
            time.sleep(seconds)
            mend(trial.world)
    trial.finish()


def broker_killed(times: int) -> Callable[[Trial], None]:
    """The broker is killed and starts again with its data on disk."""
    return partial(outage, lambda world: world.broker.kill(), lambda world: world.broker.start(), BROKER_DOWN_S, times)


def broker_paused(seconds: float) -> Callable[[Trial], None]:
    """The broker hangs with all connections open."""
    return partial(outage, lambda world: world.broker.pause(), lambda world: world.broker.resume(), seconds, 1)


def connection_cut(seconds: float) -> Callable[[Trial], None]:
    """Every connection of the application is closed, and new ones are refused for a while."""
    return partial(outage, lambda world: world.proxy.cut(), lambda world: world.proxy.restore(), seconds, 1)


def packets_lost(seconds: float) -> Callable[[Trial], None]:
    """Connections stay open but transmit nothing, in either direction."""
    return partial(outage, lambda world: world.proxy.hang(), lambda world: world.proxy.restore(), seconds, 1)


ROWS = (
    Row("broker-killed", broker_killed(3), GETS_OVER_OR_SAYS_SO),
    Row("broker-paused-45s", broker_paused(45), GETS_OVER_OR_SAYS_SO),
    Row("connection-cut-5s", connection_cut(5), GETS_OVER_OR_SAYS_SO),
    Row("connection-cut-90s", connection_cut(90), GETS_OVER_OR_SAYS_SO),
    Row("packets-lost-30s", packets_lost(30), GETS_OVER_OR_SAYS_SO),
)
