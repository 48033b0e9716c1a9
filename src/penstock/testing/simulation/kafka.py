"""`SimulatedKafka`: what a cluster of brokers keeps, and decides: logs, transactions, and the offsets of groups.

It answers as Kafka does, at once. Lost answers, delays and brokers that move are up to the clients in front of it
(`penstock.testing.simulation.clients`). It knows no replicas: what it has acknowledged is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

from penstock import machine
from penstock.records import Headers, Partition


class Outcome(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction, and the offsets that are committed with it."""

    began: float
    outcome: Outcome = Outcome.OPEN
    partitions: dict[Partition, int] = field(default_factory=dict)
    """Where it has begun to write, by partition."""
    offsets: dict[tuple[str, Partition], tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record in a log, or the mark that a transaction has ended (`is_mark`)."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    transaction: Transaction | None
    is_mark: bool = False

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return 70 + len(self.key or b"") + len(self.value or b"")


class Log:
    """A partition. `begin` is the offset of the first record that is kept, `end` the next offset."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.begin: int = 0
        self.end: int = 0
        self.open: dict[Transaction, int] = {}

    @property
    def stable_end(self) -> int:
        """Up to where no transaction is open."""
        return min(self.open.values(), default=self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
        transaction: Transaction | None = None,
        *,
        is_mark: bool = False,
    ) -> int:
        """Append a record or a mark; return its offset."""
        offset = self.end
        self.entries.append(Entry(offset, key, value, timestamp, headers, transaction, is_mark))
        self.end += 1
        return offset

    def between(self, begin: int, end: int, *, is_committed: bool) -> Iterator[Entry]:
        """Yield records in a range of offsets, without marks; only committed ones, if that is asked for."""
        for entry in self.entries[self._index(begin) :]:
            if entry.offset >= end:
                return
            if entry.is_mark:
                continue
            if is_committed and entry.transaction is not None and entry.transaction.outcome is not Outcome.COMMITTED:
                continue
            yield entry

    def at(self, timestamp_ms: int) -> int:
        """Return the offset of the first record at or after a time; -1 if there is none."""
        return next((each.offset for each in self.entries if not each.is_mark and each.timestamp >= timestamp_ms), -1)

    def delete_before(self, offset: int) -> None:
        """Delete what is before an offset, as retention does."""
        self.begin = max(self.begin, min(offset, self.stable_end))
        del self.entries[: self._index(self.begin)]

    def compact(self, now_ms: int, tombstones_ms: int) -> None:
        """Keep the last record of each key, below the first open transaction; tombstones for a while. The last entry stays."""
        clean_to = min(self.stable_end, self.end - 1)
        last = {each.key: each.offset for each in self.between(self.begin, clean_to, is_committed=True)}
        kept = []
        for entry in self.entries:
            is_dirty = entry.offset >= clean_to
            is_aborted = entry.transaction is not None and entry.transaction.outcome is Outcome.ABORTED
            is_last = not entry.is_mark and not is_aborted and last.get(entry.key) == entry.offset
            is_old = entry.value is None and entry.timestamp < now_ms - tombstones_ms
            if is_dirty or (is_last and not is_old):
                kept.append(entry)
        self.entries = kept

    def _index(self, offset: int) -> int:
        """Return where in the entries an offset is, or would be."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


@dataclass
class SimulatedTopic:
    """A topic with its logs."""

    name: str
    topic_id: str
    logs: list[Log]
    config: dict[str, str]


@dataclass
class Coordinated:
    """What the coordinator knows about a transactional id: who may use it, and the transaction that is open."""

    producer: int
    epoch: int
    timeout_s: float
    transaction: Transaction | None = None


BROKER = {"message.max.bytes": "1048588", "transaction.max.timeout.ms": "900000", "offset.metadata.max.bytes": "4096"}
"""The settings of a broker that applications look at."""

_TOPIC = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
    "min.compaction.lag.ms": "0",
}


def refused(code: int, why: str = "", *, fatal: bool = False, retriable: bool = False, aborts: bool = False) -> KafkaException:
    """Return the exception that a client raises for an error."""
    return KafkaException(KafkaError(code, why or KafkaError(code).str(), fatal, retriable, aborts))


class SimulatedKafka:
    """A cluster. Whoever changes it calls `changed`, so that those who wait look again."""

    def __init__(self, cluster_id: str = "simulated") -> None:
        self.cluster_id = cluster_id
        self.topics: dict[str, SimulatedTopic] = {}
        self.committed: dict[tuple[str, Partition], tuple[int, str]] = {}
        self.coordinated: dict[str, Coordinated] = {}
        self.members: dict[str, int] = {}
        self.broker: dict[str, str] = dict(BROKER)
        self._created = self._producers = 0
        self._something = machine.event()
        self._known: set[tuple[int, str, Partition]] = set()

    # ---- topics -------------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> SimulatedTopic:
        """Create a topic; another one with the same name has another id."""
        if name in self.topics:
            raise refused(KafkaError.TOPIC_ALREADY_EXISTS)
        self._created += 1
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.cluster_id}/{name}/{self._created}").hex
        topic = SimulatedTopic(name, identity, [Log() for _ in range(partitions)], {**_TOPIC, **(config or {})})
        self.topics[name] = topic
        self.changed()
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic, with its offsets of all groups."""
        if self.topics.pop(name, None) is None:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self.committed = {key: value for key, value in self.committed.items() if key[1][0] != name}
        self.changed()

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have so many partitions."""
        logs = self.topics[name].logs
        logs.extend(Log() for _ in range(count - len(logs)))
        self.changed()

    def log(self, partition: Partition) -> Log:
        """Return the log of a partition."""
        topic, number = partition
        if topic not in self.topics or number >= len(self.topics[topic].logs):
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.topics[topic].logs[number]

    def clean(self) -> None:
        """Compact all topics that are to be compacted."""
        now_ms = machine.now_ms()
        for topic in self.topics.values():
            if "compact" in topic.config["cleanup.policy"]:
                for log in topic.logs:
                    log.compact(now_ms, int(topic.config["delete.retention.ms"]))

    # ---- producers ----------------------------------------------------------------------------------------------------

    def init_transactions(self, transactional_id: str, timeout_s: float) -> tuple[int, int]:
        """Fence earlier producers of a transactional id, and end their transaction; return the new producer, with its epoch."""
        if timeout_s * 1_000 > int(self.broker["transaction.max.timeout.ms"]):
            raise refused(KafkaError.INVALID_TRANSACTION_TIMEOUT)
        known = self.coordinated.get(transactional_id)
        if known is None:
            known = self.coordinated[transactional_id] = Coordinated(self.new_producer(), -1, timeout_s)
        if known.transaction is not None:
            self._end(known, Outcome.ABORTED)
        known.epoch, known.timeout_s = known.epoch + 1, timeout_s
        return known.producer, known.epoch

    def transaction(self, transactional_id: str, epoch: int) -> Transaction:
        """Return the transaction of a producer, which begins with what is first asked for."""
        known = self._of(transactional_id, epoch)
        if known.transaction is None:
            known.transaction = Transaction(machine.monotonic())
        return known.transaction

    def produce(
        self,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers = (),
        transaction: Transaction | None = None,
    ) -> int:
        """Append a record; return its offset."""
        log = self.log(partition)
        limit = int(self.topics[partition[0]].config["max.message.bytes"])
        if len(key or b"") + len(value or b"") + 70 > limit:
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE)
        if transaction is not None:
            log.open.setdefault(transaction, log.end)
            transaction.partitions.setdefault(partition, log.end)
        offset = log.append(key, value, machine.now_ms() if timestamp is None else timestamp, headers, transaction)
        if transaction is None:
            self.changed()
        return offset

    def new_producer(self) -> int:
        """Return a number that no other client has."""
        self._producers += 1
        return self._producers

    def knows(self, producer: int, partition: Partition) -> bool:
        """Whether a producer has written to a partition, so that its leader refuses gaps."""
        return (producer, self.topics[partition[0]].topic_id, partition) in self._known

    def learns(self, producer: int, partition: Partition) -> None:
        """Note that a producer has written to a partition."""
        self._known.add((producer, self.topics[partition[0]].topic_id, partition))

    def end_transaction(self, transactional_id: str, epoch: int, *, commits: bool) -> None:
        """Commit or abort the transaction of a producer, if there is one. The same request again changes nothing."""
        known = self._of(transactional_id, epoch)
        if known.transaction is not None:
            self._end(known, Outcome.COMMITTED if commits else Outcome.ABORTED)

    def expire(self) -> None:
        """Abort transactions that are open for too long; their producers are fenced."""
        for known in self.coordinated.values():
            if known.transaction is not None and machine.monotonic() - known.transaction.began > known.timeout_s:
                self._end(known, Outcome.ABORTED)
                known.epoch += 1

    def _of(self, transactional_id: str, epoch: int) -> Coordinated:
        known = self.coordinated[transactional_id]
        if known.epoch != epoch:
            raise refused(KafkaError._FENCED, "there is a newer producer with this transactional id", fatal=True)
        return known

    def _end(self, known: Coordinated, outcome: Outcome) -> None:
        transaction, known.transaction = known.transaction, None
        assert transaction is not None
        transaction.outcome = outcome
        for partition in transaction.partitions:
            if partition[0] in self.topics:
                log = self.log(partition)
                log.append(None, None, machine.now_ms(), (), transaction, is_mark=True)
                log.open.pop(transaction, None)
        if outcome is Outcome.COMMITTED:
            self.committed |= transaction.offsets
        self.changed()

    # ---- groups -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, group: str, offsets: Mapping[Partition, tuple[int, str]]) -> None:
        """Commit offsets without a transaction."""
        self.committed |= {(group, partition): found for partition, found in offsets.items()}

    def offsets_of(
        self, group: str, partitions: Iterable[Partition], *, is_stable: bool
    ) -> dict[Partition, tuple[int, str] | None]:
        """Return committed offsets; refused while a transaction would change them, if they must be stable."""
        wanted = list(partitions)
        pending = {
            key for known in self.coordinated.values() if known.transaction is not None for key in known.transaction.offsets
        }
        if is_stable and any((group, partition) in pending for partition in wanted):
            raise refused(KafkaError.UNSTABLE_OFFSET_COMMIT, retriable=True)
        return {partition: self.committed.get((group, partition)) for partition in wanted}

    # ---- waiting ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Let those look again who wait for records."""
        self._something.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until something changes."""
        self._something.clear()
        self._something.wait(timeout_s)
