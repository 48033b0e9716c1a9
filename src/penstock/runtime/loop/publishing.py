"""What a start publishes with: one publisher, which has fenced any other instance, and one committer over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.config import Config
from penstock.engines.exchanging import Ending
from penstock.epochs.program import Program
from penstock.kafka.clients import largest_record
from penstock.kafka.commit import Committer
from penstock.kafka.limits import SizeLimits, check_limits, default_size, size_of
from penstock.kafka.preflight import Preflight
from penstock.kafka.publishers import Publisher, publisher_of
from penstock.kafka.statistics import OnStatistics
from penstock.kafka.topics import Topic, Topics
from penstock.observation.spans import Tracing
from penstock.runtime.instance import Instance
from penstock.runtime.loop.journal import phase_reporter
from penstock.runtime.loop.publication import Publication


class Publishing:
    """Opened once per start: renames, migrations and epochs commit through its one committer, which lets no epoch go back.

    `written` are the topics that it writes to.
    """

    def __init__(self, instance: Instance, topics: Topics, written: Mapping[str, Topic]) -> None:
        config, recorder = instance.config, instance.recorder
        broker = topics.broker_settings()
        check_limits(config, broker, list(written.values()))
        self._instance = instance
        self._topics = topics
        self._known = {name: topic.max_message_bytes for name, topic in written.items()}
        self.sizes: Sequence[int] = [default_size(broker), *self._known.values()]
        """The size limits of records; the first is the brokers' default."""
        on_statistics = recorder.clients.of("producer")
        self.publisher: Publisher
        self.ending: Ending | None
        self.publisher, self.ending = new_publisher(config, instance.program, written, self.sizes, on_statistics)
        self.publisher.start()
        self.committer: Committer = Committer(
            self.publisher, config.broker_timeout_ms, on_phase=phase_reporter(recorder), on_retry=recorder.commit_retried
        )

    def publication(self, topic_ids: Mapping[str, str], closers: list[Callable[[], None]]) -> Publication:
        """Return what publishes epochs; their rows are checked for their sizes before, and continue traces."""
        instance, program = self._instance, self._instance.program
        preflight = Preflight(program.topics, self._limits, instance.handlers.production)
        tracing = Tracing(instance.labels, program.topics)
        closers.append(instance.recorder.listen(tracing.on_epoch))
        traced = instance.config.tracing
        check = (lambda rows: preflight.check(tracing.continued(rows))) if traced else preflight.check
        return Publication(program, self.committer, check, topic_ids)

    def abandon(self) -> None:
        """Abort the transaction that executors write in, if there is one."""
        if self.ending is not None:
            self.ending.abandon()

    @property
    def _limits(self) -> SizeLimits:
        largest = largest_record(self._instance.config, self.sizes)
        return SizeLimits(self._known, self.sizes[0], largest, lambda topic: size_of(self._topics, topic))


def new_publisher(
    config: Config,
    program: Program,
    written: Mapping[str, Topic],
    sizes: Sequence[int],
    on_statistics: OnStatistics,
) -> tuple[Publisher, Ending | None]:
    """Return the driver's own publisher, or one that shares its transactions with executors, and then how those write.

    `written` are the topics that it writes to, `sizes` the size limits of records.
    """
    if not config.executors_write:
        return publisher_of(config, program.application_id, program.topics, sizes, on_statistics), None
    from penstock.engines.writing import shared_publisher  # noqa: PLC0415 - loads another Kafka client

    largest = largest_record(config, sizes)
    limits = {name: min(topic.max_message_bytes, largest) for name, topic in written.items()}
    return shared_publisher(config, program, limits)
