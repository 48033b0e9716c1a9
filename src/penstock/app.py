"""`App`: a topology with the name it runs under."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import TopologyError
from penstock.topology import Topology

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class App:
    """An application: its id, which names its consumer group, changelogs and transactions, and its topology.

    Example:
        >>> from penstock import App, Topology
        >>> App("word-count", Topology()).application_id
        'word-count'
    """

    application_id: str
    topology: Topology

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.application_id):
            raise TopologyError(f"an application id is made of letters, digits, '.', '_' and '-': {self.application_id!r} is not")
