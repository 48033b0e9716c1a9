"""`Inputs`: what an instance reads: the feed of its epochs, and the stream that requests epochs for what is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from structlog.contextvars import bound_contextvars

from penstock import machine
from penstock.engines.port import Engine
from penstock.errors import ConfigError, PenstockError
from penstock.history.past import Lost, lost_input
from penstock.history.truth import Truth
from penstock.kafka.topics import Topic, Topics
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.input.feed import FedJobs, Feed
from penstock.runtime.input.input_stream import InputStream
from penstock.runtime.input.inputs import InputLoop
from penstock.runtime.input.time_order import TimeOrder, is_timed
from penstock.runtime.input.topic_watch import Growth, TopicWatch
from penstock.runtime.instance import Instance
from penstock.runtime.loop.dispatcher import Take
from penstock.runtime.loop.epochs import Epochs

Until = str | Mapping[Partition, int] | None
"""Where a bounded run ends: `"latest"` (the end of the topics at the start), or at offsets; None for an unbounded run."""


class Inputs:
    """The input of one instance. `sources` are all topics that `truth` has found to read; epochs do not read global ones."""

    _epochs: Epochs

    def __init__(self, instance: Instance, topics: Topics, truth: Truth, sources: Mapping[str, Topic]) -> None:
        source_of = truth.source_of(sources)
        self._partitions = truth.partitions(sources)
        self._instance = instance
        self._topics = topics
        self._watched = {name: sources[name] for name in source_of}
        self._feed = Feed(instance.config, instance.program, self.ends, instance.recorder.clients.of("consumer"))
        self._feed.read_too(source_of)

    def ends(self) -> Mapping[Partition, int]:
        """Request the ends of the partitions that epochs read."""
        return self._topics.end_offsets(self._epochs.progress.offsets)

    def limits(self, until: Until) -> Mapping[Partition, int]:
        """Return the offsets at which a run ends; none if it does not."""
        if until is None:
            return {}
        if until == "latest":
            return self._topics.end_offsets(self._partitions)
        if isinstance(until, str):
            raise ConfigError(f"Invalid until={until!r}: use None, 'latest' or offsets by (topic, partition).")
        return dict(until)

    def jobs(self, engine: Engine) -> FedJobs:
        """Return the jobs of epochs, which an engine runs with records of this input."""
        return FedJobs(engine, self._feed)

    @property
    def take(self) -> Take:
        """Decides which records an epoch takes: the earliest, if there are several sources."""
        return TimeOrder(self._topics.offsets_at, is_timed(self._instance.program)).take

    def open(self, epochs: Epochs, looking: Topics, closers: list[Callable[[], None]], *, may_grow: bool) -> InputStream:
        """Return the stream, which begins where the epochs do; `looking` requests the topics of a running application."""
        self._epochs = epochs
        instance, config, recorder = self._instance, self._instance.config, self._instance.recorder
        closers.append(follow_ends(instance.application_id, self.ends, recorder))
        truth, name = instance.truth(looking), f"penstock-{instance.application_id}-epochs"

        def open_stream(offsets: Mapping[Partition, int]) -> InputLoop:
            source = self._feed.open(offsets, instance.most_epoch_bytes)
            return InputLoop(source, epochs, self._on_input, config.interval_s, name)

        def look() -> Mapping[str, Topic]:
            return looking.seen(truth.codes(truth.matched_topics()))

        def find_lost(offsets: Mapping[Partition, int]) -> tuple[Lost, ...]:
            return lost_input(offsets, looking.begin_offsets(offsets), looking.end_offsets(offsets))

        def on_growth(growth: Growth) -> None:
            grown = {topic: node for topic, node in truth.matched_topics().items() if topic in growth.topics}
            self._feed.read_too(truth.codes(grown))

        watch = TopicWatch(self._watched, look, looking.begin_offsets, may_grow)
        may_skip = config.on_lost_input == "continue"
        stream = InputStream(open_stream, epochs, watch, find_lost, on_growth, may_skip, recorder)
        closers += [stream.stop, watch.stop]
        watch.start(f"penstock-{instance.application_id}-topics")
        return stream

    def _on_input(self, ends: Mapping[Partition, int]) -> None:
        """Run epochs with the labels of this start in the log: the stream has a thread of its own."""
        with bound_contextvars(**self._instance.labels):
            self._epochs.on_input(ends)


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
