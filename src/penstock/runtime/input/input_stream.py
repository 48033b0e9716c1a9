"""The input of an application, opened again between epochs when partitions are added or records are lost.

An input reads only the partitions that it was opened with. Opening it again loses nothing: the next one reads from the committed
offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.errors import PenstockError, TopicError
from penstock.history.past import Lost, refuse_lost_input
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.input.topic_watch import Growth, TopicWatch
from penstock.runtime.loop.epochs import Epochs

_log = logging.getLogger(__name__)


class Stream(Protocol):
    """Runs epochs of the records after the offsets it was opened with."""

    def start(self) -> None:
        """Start reading."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the stream."""

    def stop(self) -> None:
        """Stop reading."""


OpenStream = Callable[[Mapping[Partition, int]], Stream]


class InputStream:
    """The input of a running application; used by one thread.

    `find_lost` compares offsets with what topics still have. With `may_skip`, the application continues without lost records.
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
        """Start reading."""
        self._stream.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the stream."""
        return self._stream.wait(timeout_s)

    def stop(self) -> None:
        """Stop reading."""
        self._stream.stop()

    def follow(self) -> None:
        """Start reading new partitions, if there are any; raises if a topic was deleted or recreated."""
        growth = self._watch.growth()
        if growth is None:
            return
        self._on_growth(growth)
        counts = {name: topic.partitions for name, topic in growth.topics.items()}
        ids = {name: topic.topic_id for name, topic in growth.topics.items()}
        self._epochs.interrupt()
        self._stream.stop()
        self._begin_anew(self._epochs.continue_from(growth.begins, counts, ids))

    def recover(self, error: Exception) -> None:
        """Continue after an error that lost records caused, if that is allowed; else raise the error that explains most."""
        if isinstance(error, PenstockError) and not isinstance(error, TopicError):
            raise error
        self._epochs.interrupt()  # what is being committed is not lost
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
        self._stream.stop()
        self._begin_anew(self._epochs.continue_from({(found.topic, found.partition): found.goes_on_at for found in lost}))

    def _reasons(self) -> Collection[Lost]:
        """Return the lost input; raises if a topic is gone, or if lost input must not be skipped."""
        self._watch.look(patience=1)
        lost = self._find_lost(self._epochs.progress.offsets)
        if not self._may_skip:
            refuse_lost_input(lost)
        return lost

    def _begin_anew(self, offsets: Mapping[Partition, int]) -> None:
        self._stream = self._open(offsets)
        self._stream.start()


def report_lost(lost: Lost, recorder: Recorder) -> None:
    """Report skipped input, in the log and in the metrics."""
    _log.warning("%s; continuing at offset %d (on_lost_input = continue)", lost, lost.goes_on_at)
    recorder.lost_input((lost.topic, lost.partition), lost.count)
