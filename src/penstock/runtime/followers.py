"""What follows the commits of an application: queries, deliveries, and Spark's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.epochs.global_tables import GlobalTables
from penstock.queries import CommittedState
from penstock.runtime.engine import Engine


class Following(Protocol):
    """Something that follows the commits."""

    def after_commit(self, epoch: int) -> None:
        """Called after each commit."""


def followed_by(
    state: CommittedState, others: Sequence[Following], engine: Engine, tables: GlobalTables
) -> Callable[[int], None]:
    """Return what is called after each commit; Spark shows the stores as tables, and has the global ones, if it is there."""
    followers: list[Following] = [state, *others]
    if engine.spark is not None:
        engine.spark.query(state)
        engine.spark.join(tables)
        followers.append(engine.spark)

    def follow(epoch: int) -> None:
        for follower in followers:
            follower.after_commit(epoch)

    return follow
