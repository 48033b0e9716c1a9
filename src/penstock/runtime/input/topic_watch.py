"""Watches the topics that a running application reads: new partitions and topics, and topics that were deleted or recreated.

It sends its requests in a thread of its own, because brokers may be slow; the application acts on its findings between epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from penstock import machine
from penstock.errors import PenstockError, TopicError
from penstock.history.past import rewind
from penstock.kafka.topics import Topic
from penstock.records import Partition

_log = logging.getLogger(__name__)

TOPICS_EVERY_S = 5.0
"""How often topics are looked up; new partitions should be read within half a minute."""

MISSED_LOOKS = 2
"""A topic counts as deleted when this many lookups in a row miss it: a broker that just started may not know it yet."""


@dataclass(frozen=True)
class Growth:
    """New topics and topics with new partitions, and where the new partitions begin."""

    topics: Mapping[str, Topic]
    begins: Mapping[Partition, int]


def read_anew(topic: str) -> str:
    """Return what to do about a topic that epochs read, and that was created again."""
    return f"{rewind(topic)}, or reset the application"


def new_partitions(
    known: Mapping[str, Topic], found: Mapping[str, Topic], cure: Callable[[str], str] = read_anew
) -> list[Partition]:
    """Return the new partitions; raises if a topic was recreated, with the `cure`."""
    for name in known.keys() & found.keys():
        if known[name].topic_id != found[name].topic_id:
            raise TopicError(
                f"Topic {name!r} was deleted and created again while the application was running, so that its offsets are no "
                f"longer valid. {cure(name)}."
            )
    counts = {name: known[name].partitions if name in known else 0 for name in found}
    return [(name, number) for name in sorted(found) for number in range(counts[name], found[name].partitions)]


class TopicWatch:
    """Watches topics. `look` returns the existing topics that are read, `begins` where partitions begin.

    `cure` returns what to do about a topic that was created again.
    """

    def __init__(
        self,
        known: Mapping[str, Topic],
        look: Callable[[], Mapping[str, Topic]],
        begins: Callable[[list[Partition]], Mapping[Partition, int]],
        may_grow: bool = True,
        cure: Callable[[str], str] = read_anew,
    ) -> None:
        self._known = dict(known)
        self._look = look
        self._begins = begins
        self._may_grow = may_grow
        self._cure = cure
        self._grown: SimpleQueue[Growth] = SimpleQueue()
        self._missed: dict[str, int] = {}
        self._failure: TopicError | None = None
        self._ended = machine.event()
        self._asking = machine.lock()

    def start(self, name: str) -> None:
        """Look periodically, in a thread of this name."""
        machine.thread(self._follow, name).start()

    def stop(self) -> None:
        """Stop looking."""
        self._ended.set()

    def growth(self) -> Growth | None:
        """Return what is new since the last call; raises if a topic was deleted or recreated."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._grown.get_nowait()
        except Empty:
            return None

    def look(self, patience: int = MISSED_LOOKS) -> None:
        """Look once; a topic counts as deleted if it was missing `patience` times in a row."""
        with self._asking:
            found = self._look()
            self._missed = {name: self._missed.get(name, 0) + 1 for name in self._known.keys() - found.keys()}
            gone = sorted(name for name, times in self._missed.items() if times >= patience)
            if gone:
                raise TopicError(
                    f"Topic {gone[0]!r} was deleted while the application was running. Remove it from the topology (a pattern no "
                    f"longer matches it at the next start), or create it again. In that case: {self._cure(gone[0])}."
                )
            new = new_partitions(self._known, found, self._cure)
            if not new or not self._may_grow:
                return
            try:
                begins = dict(self._begins(new))
            except PenstockError as error:  # some brokers do not know new partitions yet
                _log.debug("cannot read new partitions yet: %s", error)
                return
            grown = {name: found[name] for name, _ in new}
            self._known |= grown
            self._grown.put(Growth(grown, begins))
            _log.info("reading new partitions from their beginning: %s", ", ".join(f"{name}-{number}" for name, number in new))

    def _follow(self) -> None:
        while not self._ended.wait(TOPICS_EVERY_S):
            try:
                self.look()
            except TopicError as error:
                self._failure = error
                return
            except PenstockError as error:
                _log.debug("cannot look up topics: %s", error)
