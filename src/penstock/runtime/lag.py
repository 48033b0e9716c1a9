"""Follows the ends of the source topics, from which the lag of an application is computed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from penstock.errors import PenstockError
from penstock.observation import Recorder
from penstock.records import Partition

_log = logging.getLogger(__name__)

_EVERY_S = 2.0


def follow_ends(application_id: str, ends: Callable[[], Mapping[Partition, int]], recorder: Recorder) -> Callable[[], None]:
    """Request the ends periodically, in a thread of its own, because brokers may be slow; return what ends that."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_EVERY_S):
            try:
                recorder.saw_ends(ends())
            except PenstockError as error:  # `TopicWatch` reports a topic that is gone
                _log.debug("cannot determine the lag: %s", error)

    threading.Thread(target=follow, name=f"penstock-{application_id}-ends", daemon=True).start()
    return ended.set
