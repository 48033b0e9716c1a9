"""What follows the commits of an application: queries, deliveries, and Spark's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.queries import CommittedState
from penstock.runtime.hosting.engine import Hosting

Follow = Callable[[int], None]
"""Called after each commit, with its epoch."""


def followed_by(state: CommittedState, others: Iterable[Follow], hosting: Hosting) -> Follow:
    """Return what is called after each commit; Spark, if it is there, shows the stores as tables."""
    followers = [state.after_commit, *others]
    if hosting.spark is not None:
        hosting.spark.query(state)
        followers.append(hosting.spark.after_commit)

    def follow(epoch: int) -> None:
        for follower in followers:
            follower(epoch)

    return follow
