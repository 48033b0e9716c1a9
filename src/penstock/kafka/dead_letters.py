"""Dead letters in Kafka: reads a dead-letter topic, and replays letters, each exactly once.

A transaction holds replayed records and, for each, a row of the ledger: a topic that every replay reads first. So when a replay
dies, the next one knows from the ledger what was sent. Of two replays at once, the second fences the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock import machine
from penstock.config import Config, Guarantee
from penstock.errors import BrokerError, FencedError, PenstockError, TopicError
from penstock.faults import point
from penstock.kafka import changelog
from penstock.kafka.clients import consumer_settings, open_admin
from penstock.kafka.preflight import HEADER_OVERHEAD, RECORD_OVERHEAD
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.records import RecordReader, TopicRecord
from penstock.kafka.topics import InternalTopic, Topic, Topics
from penstock.lanes.epoch import HEADERS
from penstock.letters import TOO_OFTEN, Choice, Ledger, Letter, Refused, Replay, Rules, attempts, judged, replay_headers
from penstock.records import Headers, Partition, RecordMetadata

if TYPE_CHECKING:
    from typing_extensions import Self

LETTERS_PER_TRANSACTION = 500
BYTES_PER_TRANSACTION = 8_000_000
TRANSACTION_TIMEOUT_MS = 10_000
"""The open transaction of a killed replay blocks readers of its source topics for at most this long."""

ONE_RECORD_BYTES = "65536"
"""How much to fetch to look up one record; the broker sends a larger record anyway."""

BATCH_BYTES = 16_384
LARGEST_RECORD = 100_000_000
"""The largest batch, small enough for any topic; and the largest record, so large that only its topic limits it."""

_ROWS = pa.schema(
    [
        pa.field("name", pa.int16()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)


class DeadLetters:
    """Reads a dead-letter topic; a context manager that closes its clients."""

    def __init__(self, config: Config, topic: str) -> None:
        self._config = config
        self._admin = open_admin(config)  # keep it: requests of a client that was garbage-collected never return
        self._topics = Topics(self._admin, config.broker_timeout_ms)
        self._known: dict[str, Topic | None] = {}
        found = self.known(topic)
        if found is None:
            raise TopicError(f"Dead-letter topic {topic!r} does not exist.")
        self.topic = found
        self._settings = consumer_settings(config, f"{topic}-letters")
        self._originals: RecordReader | None = None
        self._begins: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._originals is not None:
            self._originals.close()

    def known(self, topic: str) -> Topic | None:
        """The topic of that name; None if it does not exist."""
        if topic not in self._known:
            self._known[topic] = self._topics.describe([topic]).get(topic)
        return self._known[topic]

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if it does not exist."""
        found = self.known(topic)
        return None if found is None else found.partitions

    def letters(self, choice: Choice) -> Iterator[Letter]:
        """Yield the chosen letters of each partition, in the order they were written."""
        name = self.topic.name
        places = [(name, number) for number in range(self.topic.partitions)]
        begins, ends = self._topics.begin_offsets(places), self._topics.end_offsets(places)
        if choice.spans:
            begins, ends = _narrowed(begins, ends, choice)
        with closing(RecordReader(self._settings, self._config.broker_timeout_ms)) as reader:
            for found in reader.read(begins, ends):
                place = RecordMetadata(found.topic, found.partition, found.offset)
                letter = Letter(place, found.key, found.value, found.timestamp, found.headers)
                if choice.takes(letter):
                    yield letter

    def original(self, source: RecordMetadata) -> TopicRecord | None:
        """Read a record from its source topic; None if it is no longer there."""
        place = (source.topic, source.partition)
        if place not in self._ends:
            self._begins |= self._topics.begin_offsets([place])
            self._ends |= self._topics.end_offsets([place])
        if not self._begins[place] <= source.offset < self._ends[place]:
            return None
        if self._originals is None:
            settings = {**self._settings, "max.partition.fetch.bytes": ONE_RECORD_BYTES}
            self._originals = RecordReader(settings, self._config.broker_timeout_ms, piece=1)
        found = [*self._originals.read({place: source.offset}, {place: source.offset + 1})]
        return found[0] if found else None

    def ledger(self, application_id: str) -> Ledger:
        """Read the ledger: which of an application's letters have been replayed."""
        ledger = Ledger(self.topic.topic_id)
        name = ledger_topic(application_id, self.topic.name)
        if not self._topics.describe([name]):
            return ledger
        begins, ends = self._topics.begin_offsets([(name, 0)]), self._topics.end_offsets([(name, 0)])
        settings = consumer_settings(self._config, f"{name}-reader")
        for rows in changelog.read(settings, begins, ends, self._config.broker_timeout_ms):
            for key, value in zip(rows.keys, rows.values, strict=True):
                ledger.take(key, value)
        return ledger

    def ensure_ledger(self, application_id: str) -> None:
        """Create the ledger's topic if it does not exist."""
        wanted = InternalTopic(ledger_topic(application_id, self.topic.name), 1, {"cleanup.policy": "compact"})
        self._topics.ensure([wanted], self._config.replication_factor)


def ledger_topic(application_id: str, topic: str) -> str:
    """The name of the ledger's topic: it lists the letters that were replayed from a dead-letter topic."""
    return f"{application_id}-{topic}-replayed"


class Sending(NamedTuple):
    """A replay with the record to send for it."""

    replay: Replay
    record: TopicRecord
    headers: Headers

    @property
    def size(self) -> int:
        """An upper bound of the bytes to send."""
        rest = sum(len(name) + len(value or b"") + HEADER_OVERHEAD for name, value in self.headers)
        return len(self.record.key or b"") + len(self.record.value or b"") + rest + RECORD_OVERHEAD


@dataclass(slots=True)
class Tally:
    """What has happened to the letters so far: counts by target, and of refused ones by reason, with the first of each."""

    chosen: int = 0
    replayed: int = 0
    targets: dict[tuple[str, str | None], int] = field(default_factory=dict)
    refused: dict[str, tuple[int, RecordMetadata]] = field(default_factory=dict)

    def take(self, replay: Replay) -> None:
        """Count a letter that is replayed, or would be in a dry run."""
        target = (replay.source.topic, replay.node)
        self.targets[target] = self.targets.get(target, 0) + 1

    def refuse(self, refused: Refused) -> None:
        """Count a letter that is not replayed."""
        count, first = self.refused.get(refused.why, (0, refused.letter.place))
        self.refused[refused.why] = (count + 1, first)


class Replayer:
    """Replays the letters of one application; `rules` say which can be replayed.

    A dry run sends nothing, fences no other replay and creates no topic.
    """

    def __init__(self, config: Config, letters: DeadLetters, rules: Rules, *, is_dry: bool) -> None:
        timeout_ms = min(config.transaction_timeout_ms, TRANSACTION_TIMEOUT_MS)
        self._config = replace(config, guarantee=Guarantee.EXACTLY_ONCE, transaction_timeout_ms=timeout_ms)
        self._letters = letters
        self._rules = rules
        self._is_dry = is_dry
        self._ledger = Ledger("")
        self._committed = 0
        self._publisher: TransactionalPublisher | None = None

    def run(
        self,
        choice: Choice,
        limit: int | None = None,
        is_ending: Callable[[], bool] = lambda: False,
        on_progress: Callable[[Tally], None] = lambda tally: None,
    ) -> Tally:
        """Replay the chosen letters, at most `limit`; once `is_ending`, commit the pending ones and return."""
        self._start()
        tally, waiting, size = Tally(), list[Sending](), 0
        for letter in self._letters.letters(choice):
            if is_ending():
                break
            tally.chosen += 1
            verdict = self._judged(letter)
            if isinstance(verdict, Refused):
                tally.refuse(verdict)
                continue
            tally.take(verdict.replay)
            waiting.append(verdict)
            size += verdict.size
            is_last = limit is not None and sum(tally.targets.values()) >= limit
            if is_last or len(waiting) >= LETTERS_PER_TRANSACTION or size >= BYTES_PER_TRANSACTION:
                self._send(waiting, tally)
                on_progress(tally)
                waiting, size = [], 0
            if is_last:
                break
        self._send(waiting, tally)
        return tally

    def close(self) -> None:
        """Close the producer."""
        if self._publisher is not None:
            self._publisher.close()

    def _start(self) -> None:
        """Read the ledger; unless this is a dry run, fence other replays first."""
        application = self._rules.application
        if not self._is_dry:
            self._letters.ensure_ledger(application)
            self._open()
        self._ledger = self._letters.ledger(application)
        self._committed = len(self._ledger)

    def _open(self) -> TransactionalPublisher:
        ledger = ledger_topic(self._rules.application, self._letters.topic.name)
        who = ledger.removesuffix("ed")  # the transactional id: "<application>-<topic>-replay"
        self._publisher = TransactionalPublisher(self._config, who, who, [ledger], (BATCH_BYTES, LARGEST_RECORD))
        self._publisher.start()
        return self._publisher

    def _judged(self, letter: Letter) -> Sending | Refused:
        verdict = judged(letter, self._ledger, self._rules)
        if isinstance(verdict, Refused):
            return verdict
        source = verdict.source
        record: TopicRecord | None = TopicRecord(*source, letter.key, letter.value, letter.timestamp, letter.headers)
        if not letter.is_whole:
            record = self._letters.original(source)
            if record is None:
                return Refused(letter, "it lacks the record's original content, and the source topic no longer has the record")
        assert record is not None
        if attempts(record.headers, letter.place.topic) >= self._rules.max_attempts:
            return Refused(letter, TOO_OFTEN)
        sending = Sending(verdict, record, replay_headers(letter, record.headers, verdict.node))
        target = self._letters.known(source.topic)
        if target is not None and sending.size > target.max_message_bytes:
            return Refused(letter, f"with the headers of a replay, it is too large for topic {source.topic!r}")
        self._ledger.note(verdict)
        return sending

    def _send(self, sendings: Sequence[Sending], tally: Tally) -> None:
        """Send the records and the ledger's rows in one transaction."""
        if self._is_dry or not sendings:
            return
        publisher = self._ready(sendings)
        try:
            publisher.begin()
            publisher.produce(self._rows(sendings))
            point("replay.before_commit")
            self._commit(publisher)
        except PenstockError as error:
            if isinstance(error, FencedError) or _is_fenced(publisher):
                raise FencedError("Another replay of this topic has taken over, and continues where this one stopped.") from error
            raise
        point("replay.after_commit")
        self._committed += len(sendings)
        tally.replayed += len(sendings)

    def _ready(self, sendings: Sequence[Sending]) -> TransactionalPublisher:
        """Return a producer with no commit that may arrive late. A new one must find the ledger as this replay left it."""
        publisher = self._publisher
        assert publisher is not None
        if publisher.is_suspect:
            publisher.close()
            publisher = self._open()
            found = self._letters.ledger(self._rules.application)
            if len(found) != self._committed or any(found.has(sending.replay.letter) for sending in sendings):
                raise FencedError("Another replay of this topic has committed in the meantime. Start the replay again.")
        return publisher

    def _commit(self, publisher: TransactionalPublisher) -> None:
        patience = self._config.broker_timeout_ms / 1_000
        deadline = machine.monotonic() + patience
        while not publisher.commit():
            if machine.monotonic() >= deadline:
                raise BrokerError(f"No broker has confirmed the commit within {patience:g} s. Start the replay again.")

    def _rows(self, sendings: Sequence[Sending]) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = []
        for replay, record, headers in sendings:
            key, value = self._ledger.row(replay)
            rows += [
                _row(-1, record.topic, record.partition, record.timestamp, record.key, record.value, headers),
                _row(0, None, 0, machine.now_ms(), key, value, ()),
            ]
        return pa.RecordBatch.from_pylist(rows, schema=_ROWS)


def _is_fenced(publisher: TransactionalPublisher) -> bool:
    """Abort a failed transaction; return whether another replay made it fail, which Kafka may report only now."""
    try:
        publisher.abort()
    except FencedError:
        return True
    except PenstockError:  # the transaction will time out, and the next replay does not wait for that
        return False
    return False


def _row(
    name: int, topic: str | None, partition: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
) -> dict[str, Any]:
    pairs = [{"name": header, "value": data} for header, data in headers] or None
    return {
        "name": name,
        "topic": topic,
        "partition": partition,
        "timestamp": timestamp,
        "key": key,
        "value": value,
        "headers": pairs,
    }


def _narrowed(
    begins: Mapping[Partition, int], ends: Mapping[Partition, int], choice: Choice
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Limit begins and ends to the chosen spans."""
    low, high = dict[Partition, int](), dict[Partition, int]()
    for place in begins:
        spans = [span for span in choice.spans if span.partition == place[1]]
        low[place] = max([begins[place], min((span.first for span in spans), default=ends[place])])
        high[place] = min([ends[place], max((span.last + 1 for span in spans), default=begins[place])])
    return low, high
