"""What an application reads: Spark's stream of it, which begins anew between epochs where partitions come or records are gone.

A stream of Spark's reads the partitions it was started with. Its end costs nothing: what it had read and no epoch has taken is
read again by the next one, from the offsets that are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.errors import PenstockError, TopicError
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.epochs import Epochs
from penstock.runtime.past import Lost, refuse_lost_input
from penstock.runtime.topic_watch import Growth, TopicWatch

_log = logging.getLogger(__name__)


class Stream(Protocol):
    """Micro-batches from the offsets it was opened with."""

    def start(self) -> None:
        """Begin."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; whether it has come. Raises what ended it."""

    def stop(self) -> None:
        """End it."""


OpenStream = Callable[[Mapping[Partition, int]], Stream]


class InputStream:
    """The input of a running application; asked by one thread.

    `find_lost` compares offsets with what topics still have. Where that `may_skip`, the application goes on without.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        epochs: Epochs,
        watch: TopicWatch,
        find_lost: Callable[[Mapping[Partition, int]], Collection[Lost]],
        on_growth: Callable[[Growth], None],
        may_skip: bool,
        recorder: Recorder,
    ) -> None:
        self._open = open_stream
        self._epochs = epochs
        self._watch = watch
        self._find_lost = find_lost
        self._on_growth = on_growth
        self._may_skip = may_skip
        self._recorder = recorder
        self._stream = open_stream(epochs.progress.offsets)

    def start(self) -> None:
        """Begin to read."""
        self._stream.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; whether it has come. Raises what ended it."""
        return self._stream.wait(timeout_s)

    def stop(self) -> None:
        """Read no more."""
        self._stream.stop()

    def follow(self) -> None:
        """Read partitions that have come, too; raises if a topic is gone, or is another one now."""
        growth = self._watch.growth()
        if growth is None:
            return
        self._on_growth(growth)
        counts = {name: topic.partitions for name, topic in growth.topics.items()}
        ids = {name: topic.topic_id for name, topic in growth.topics.items()}
        self._epochs.pause()
        self._stream.stop()
        self._begin_anew(self._epochs.resume(growth.begins, counts, ids))

    def recover(self, error: Exception) -> None:
        """Go on after an error that comes from records that are gone, if that is allowed; else raise what says most about it."""
        if isinstance(error, PenstockError) and not isinstance(error, TopicError):
            raise error
        try:
            lost = self._reasons()
        except TopicError as reason:
            raise reason from error
        except PenstockError:
            raise error from None
        if not lost:
            raise error
        for found in lost:
            report_lost(found, self._recorder)
        self._epochs.pause()
        self._stream.stop()
        self._begin_anew(self._epochs.resume({(found.topic, found.partition): found.goes_on_at for found in lost}))

    def _reasons(self) -> Collection[Lost]:
        """The input that is gone; raises if a topic is, or if nothing may be skipped."""
        self._watch.look(patience=1)
        lost = self._find_lost(self._epochs.progress.offsets)
        if not self._may_skip:
            refuse_lost_input(lost)
        return lost

    def _begin_anew(self, offsets: Mapping[Partition, int]) -> None:
        self._stream = self._open(offsets)
        self._stream.start()


def report_lost(lost: Lost, recorder: Recorder) -> None:
    """Say that input is skipped: in the log, and in the metrics."""
    _log.warning("%s; going on at offset %d (on_lost_input = continue)", lost, lost.goes_on_at)
    recorder.lost_input((lost.topic, lost.partition), lost.count)
