"""Follows the ends of the source topics, from which the lag of an application is computed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock import machine
from penstock.errors import PenstockError
from penstock.observation import Recorder
from penstock.records import Partition

_log = logging.getLogger(__name__)

_EVERY_S = 2.0


def follow_ends(application_id: str, ends: Callable[[], Mapping[Partition, int]], recorder: Recorder) -> Callable[[], None]:
    """Request the ends periodically, in a thread of its own, because brokers may be slow; return what ends that."""
    ended = machine.event()

    def follow() -> None:
        while not ended.wait(_EVERY_S):
            try:
                recorder.saw_ends(ends())
            except PenstockError as error:  # `TopicWatch` reports a topic that is gone
                _log.debug("cannot determine the lag: %s", error)

    machine.thread(follow, f"penstock-{application_id}-ends").start()
    return ended.set
