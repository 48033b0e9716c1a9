"""`TaskSetUp`: what engines need of a start beside the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.engines.exchanging import Ending
from penstock.epochs.program import GlobalTopics


class TaskSetUp(NamedTuple):
    """What engines need beside the program: `prepare` is called once in every slot; an epoch may take `patience_s`.

    On a cluster, `global_topics` returns what each host reads into its global tables, and `ending` how executors write.
    """

    prepare: Callable[[], None]
    patience_s: float
    global_topics: Callable[[], GlobalTopics | None] = lambda: None
    ending: Callable[[], Ending | None] = lambda: None
