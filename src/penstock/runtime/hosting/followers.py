"""What follows the commits of an application: queries, deliveries, copies of lanes, and Spark's tables."""

from __future__ import annotations

from collections.abc import Callable

from penstock.queries import CommittedState
from penstock.runtime.hosting.engine import Hosting
from penstock.runtime.hosting.state_copies import state_copies
from penstock.runtime.instance import Instance

Follow = Callable[[int], None]
"""Called after each commit, with its epoch."""


def followed_by(
    instance: Instance, state: CommittedState, deliver: Follow, hosting: Hosting, closers: list[Callable[[], None]]
) -> Follow:
    """Return what is called after each commit; Spark, if it is there, shows the stores as tables. `closers` gets what ends it."""
    interval_s = instance.config.state_copy_interval_ms / 1_000
    copies = state_copies(instance.program, interval_s, state, hosting.engine.server_of)
    closers.extend(each.close for each in copies)
    followers = [state.after_commit, deliver, *(each.after_commit for each in copies)]
    if hosting.spark is not None:
        hosting.spark.query(state)
        followers.append(hosting.spark.after_commit)

    def follow(epoch: int) -> None:
        for follower in followers:
            follower(epoch)

    return follow
