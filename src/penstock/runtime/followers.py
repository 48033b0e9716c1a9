"""What follows the commits of an application: queries, deliveries, and Spark's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.queries import CommittedState
from penstock.runtime.engine import Hosting


class Following(Protocol):
    """Something that follows the commits."""

    def after_commit(self, epoch: int) -> None:
        """Called after each commit."""


def followed_by(state: CommittedState, others: Sequence[Following], hosting: Hosting) -> Callable[[int], None]:
    """Return what is called after each commit; Spark, if it is there, shows the stores as tables."""
    followers: list[Following] = [state, *others]
    if hosting.spark is not None:
        hosting.spark.query(state)
        followers.append(hosting.spark)

    def follow(epoch: int) -> None:
        for follower in followers:
            follower.after_commit(epoch)

    return follow
