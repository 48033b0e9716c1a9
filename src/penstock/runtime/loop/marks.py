"""`Marks`: how far the changelogs reach, for lanes to catch up from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock import machine
from penstock.errors import BrokerError, CommitError
from penstock.state import Mark

_log = logging.getLogger(__name__)


class Marks:
    """Makes marks; `ends` returns where the changelogs end now, by `topic/partition`, and `topic_ids` are their ids."""

    def __init__(self, ends: Callable[[], Mapping[str, int]], topic_ids: Mapping[str, str]) -> None:
        self._ends = ends
        self._topic_ids = dict(topic_ids)

    def new(self, epoch: int) -> Mark | None:
        """Return a mark of a committed epoch, or None if that fails: then a restart only reads more."""
        try:
            return Mark(epoch, machine.now_ms(), dict(self._ends()), self._topic_ids)
        except (BrokerError, CommitError) as error:
            _log.warning("no mark was written, so that a restart would read more of the changelogs: %s", error)
            return None
