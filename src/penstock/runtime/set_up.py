"""`TaskSetUp`: what engines need of a start beside the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.epochs.program import GlobalTopics

if TYPE_CHECKING:
    from penstock.engines.writing import WriteStage  # loads another Kafka client


class TaskSetUp(NamedTuple):
    """What engines need beside the program: `prepare` is called once in every slot; a request may take `patience_s`.

    On a cluster, `global_topics` returns what each host reads into its global tables, and `write_stage` how executors write.
    """

    prepare: Callable[[], None]
    patience_s: float
    global_topics: Callable[[], GlobalTopics | None] = lambda: None
    write_stage: Callable[[], WriteStage | None] = lambda: None
