"""The source topics while an application runs: partitions and topics that come, and topics that are gone or are others now.

It asks in a thread of its own, because brokers may take their time; what it finds is heeded between epochs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from penstock.errors import PenstockError, TopicError
from penstock.kafka.topics import Topic
from penstock.records import Partition
from penstock.runtime.past import rewind

_log = logging.getLogger(__name__)

TOPICS_EVERY_S = 5.0
"""How often brokers are asked about topics: what comes is to be read within half a minute."""

MISSED_LOOKS = 2
"""So often in a row a topic has to be missing before it is taken for deleted: a broker that just came up may not know it yet."""


@dataclass(frozen=True)
class Growth:
    """Topics that have more partitions than before, or none before, and where the new ones begin."""

    topics: Mapping[str, Topic]
    begins: Mapping[Partition, int]


def new_partitions(known: Mapping[str, Topic], found: Mapping[str, Topic]) -> list[Partition]:
    """The partitions that have come. A topic that was created again is not the one that was read."""
    for name in known.keys() & found.keys():
        if known[name].topic_id != found[name].topic_id:
            raise TopicError(
                f"topic {name!r} was deleted and created again while the application ran: its offsets are of another topic now. "
                f"{rewind(name)}, or reset the application"
            )
    counts = {name: known[name].partitions if name in known else 0 for name in found}
    return [(name, number) for name in sorted(found) for number in range(counts[name], found[name].partitions)]


class TopicWatch:
    """Follows topics. `look` asks for those that there are and that are read, `begins` for where partitions begin."""

    def __init__(
        self,
        known: Mapping[str, Topic],
        look: Callable[[], Mapping[str, Topic]],
        begins: Callable[[list[Partition]], Mapping[Partition, int]],
        may_grow: bool = True,
    ) -> None:
        self._known = dict(known)
        self._look = look
        self._begins = begins
        self._may_grow = may_grow
        self._grown: SimpleQueue[Growth] = SimpleQueue()
        self._missed: dict[str, int] = {}
        self._failure: TopicError | None = None
        self._ended = threading.Event()
        self._asking = threading.Lock()

    def start(self, name: str) -> None:
        """Look now and then, in a thread of this name."""
        threading.Thread(target=self._follow, name=name, daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def growth(self) -> Growth | None:
        """What has come since it was asked last; raises if a topic is gone, or is another one now."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._grown.get_nowait()
        except Empty:
            return None

    def look(self, patience: int = MISSED_LOOKS) -> None:
        """Look once; a topic is gone that was missing so many times in a row."""
        with self._asking:
            found = self._look()
            self._missed = {name: self._missed.get(name, 0) + 1 for name in self._known.keys() - found.keys()}
            gone = sorted(name for name, times in self._missed.items() if times >= patience)
            if gone:
                raise TopicError(
                    f"topic {gone[0]!r} was deleted while the application ran. Take it out of the topology (a pattern does "
                    f"without it at the next start); or create it again, and {rewind(gone[0])}"
                )
            new = new_partitions(self._known, found)
            if not new or not self._may_grow:
                return
            try:
                begins = dict(self._begins(new))
            except PenstockError as error:  # they are so new that not every broker knows them
                _log.debug("new partitions cannot be read yet: %s", error)
                return
            grown = {name: found[name] for name, _ in new}
            self._known |= grown
            self._grown.put(Growth(grown, begins))
            _log.info("new partitions are read from their beginning: %s", ", ".join(f"{name}-{number}" for name, number in new))

    def _follow(self) -> None:
        while not self._ended.wait(TOPICS_EVERY_S):
            try:
                self.look()
            except TopicError as error:
                self._failure = error
                return
            except PenstockError as error:
                _log.debug("topics cannot be looked at: %s", error)
