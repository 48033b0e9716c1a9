"""The load: an endless stream of payments from a seed, each written once, and kept with its offset in Kafka."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from verification.chaos.checker import Letter
from verification.chaos.payments import Payment
from verification.harness.processes import HarnessError
from verification.harness.topics import ONE_BY_ONE

if TYPE_CHECKING:
    from typing_extensions import Self

HOT_KEYS, COLD_KEYS = 6, 42
GROUPS = 7
GHOSTS = 10**9
"""Payments of another application's transaction are numbered from here."""
FLUSH_S = 120
TICK_S = 0.02
METADATA_S = 10

Poison = Callable[[random.Random, bytes], "bytes | None"]
"""Makes a value that cannot be processed from one that can."""


class Load:
    """Writes payments at a steady rate while it runs; a context manager, so that it ends.

    `poison` lists kinds of bad values; one record in a hundred has one.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, seed: int, rate: int = 200, poison: tuple[Poison, ...] = ()
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._added = range(partitions, partitions)
        self._random = random.Random(seed)
        self._rate = rate
        self._poison = poison
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                **ONE_BY_ONE,
                "linger.ms": 5,
                "message.timeout.ms": 0,  # no limit: a broker may be down for a while
                "log_level": 0,
            }
        )
        self._steps: dict[str, int] = defaultdict(int)
        self._last_time = 0
        self._failures: list[str] = []
        self._running = threading.Event()
        self._ending = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.last_number = -1
        self.payments: list[Payment] = []
        self.poisonous: list[Letter] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._running.clear()
        self._ending.set()
        self._thread.join()
        self._producer.purge()

    def go_on(self) -> None:
        """Start or resume writing."""
        self._idle.clear()
        self._running.set()

    def pause(self) -> None:
        """Stop writing, and wait until Kafka has everything."""
        self._running.clear()
        if self._thread.is_alive():
            self._idle.wait(FLUSH_S)
        left = self._producer.flush(FLUSH_S)
        if left or self._failures:
            raise HarnessError(f"the load itself failed: {left} unsent, {len(self._failures)} failed: {self._failures[:3]}")

    def grow(self, partitions: int) -> None:
        """Also write to added partitions, with new keys, since the payments of a key have one order."""
        self._added = range(self._partitions, partitions)

    def send(self, count: int) -> None:
        """Write some payments now; only while paused."""
        for _ in range(count):
            self._send()
        self.pause()

    def send_poison(self, kind: Poison, partition: int) -> None:
        """Write one bad record to a partition now; only while paused."""
        self._write(b"poisoned", kind(self._random, b'{"number":0}'), partition, self._now(), self._poisoned)
        self.pause()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            if not self._running.is_set():
                self._idle.set()
                self._running.wait(TICK_S)
                due = time.monotonic()
                continue
            due += TICK_S
            for _ in range(int(self._rate * TICK_S)):
                self._send()
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)  # returns as soon as there is something to report
            self._producer.poll(0)

    def _send(self) -> None:
        made = self._made()
        key, value, now = made.key.encode(), made.value(), made.timestamp
        if self._poison and self._random.random() < 0.01:
            bad = self._random.choice(self._poison)(self._random, value)
            self._write(key, bad, made.partition, now, self._poisoned)
            return
        self._steps[made.key] += 1
        self.last_number = made.number
        self._write(key, value, made.partition, now, partial(self._delivered, made))

    def _made(self) -> Payment:
        chooser = self._random
        is_hot = chooser.random() < 0.5
        key = f"k{chooser.randrange(HOT_KEYS)}" if is_hot else f"k{HOT_KEYS + chooser.randrange(COLD_KEYS)}"
        partition = crc32(key.encode()) % self._partitions
        if self._added and chooser.random() < 0.4:
            partition = chooser.choice(self._added)
            key = f"added-{partition}-{chooser.randrange(HOT_KEYS)}"
        group = f"g{chooser.randrange(GROUPS)}"
        return Payment(
            number=self.last_number + 1,
            key=key,
            step=self._steps[key],
            group=group,
            amount=chooser.randrange(1, 1000),
            partition=partition,
            offset=-1,
            timestamp=self._now(),
        )

    def _now(self) -> int:
        self._last_time = max(self._last_time, int(time.time() * 1000))
        return self._last_time

    def _write(
        self, key: bytes, value: bytes | None, partition: int, timestamp: int, delivered: Callable[[Message], None]
    ) -> None:
        def report(error: object, message: Message) -> None:
            if error is None:
                delivered(message)
            else:
                self._failures.append(str(error))

        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, report, timestamp=timestamp)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                self._producer.list_topics(self._topic, METADATA_S)  # a partition that was added after the last look
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, payment: Payment, message: Message) -> None:
        self.payments.append(payment._replace(offset=_offset(message)))

    def _poisoned(self, message: Message) -> None:
        self.poisonous.append(Letter(_partition(message), _offset(message), _bytes(message.key()), _bytes(message.value())))


class Upstream:
    """Another application that writes to the same input in a long transaction."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"{topic}-upstream",
                "transaction.timeout.ms": 300_000,
            }
        )
        self._producer.init_transactions(FLUSH_S)
        self._written = 0
        self._open: list[Payment] = []
        self.payments: list[Payment] = []
        """The payments that it has committed."""

    def begin(self) -> None:
        """Open a transaction and write to every partition: readers of committed records stop there."""
        self._producer.begin_transaction()
        for partition in range(self._partitions):
            now = int(time.time() * 1000)
            number = GHOSTS + self._written
            ghost = Payment(number, f"ghost-{partition}", self._written, "ghosts", 1, partition, -1, now)
            report = partial(self._delivered, ghost)
            self._producer.produce(self._topic, ghost.value(), ghost.key, partition, report, timestamp=now)
            self._written += 1
        if self._producer.flush(FLUSH_S):
            raise HarnessError("the upstream transaction could not be written")

    def end(self, well: bool) -> None:
        """Commit it, so that its payments count at their offsets; or abort it, so that none may ever be visible."""
        if well:
            self._producer.commit_transaction(FLUSH_S)
            self.payments += self._open
        else:
            self._producer.abort_transaction(FLUSH_S)
        self._open = []

    def _delivered(self, ghost: Payment, error: object, message: Message) -> None:
        if error is None:
            self._open.append(ghost._replace(offset=_offset(message)))


def bad_utf8(chooser: random.Random, value: bytes) -> bytes:
    """Bytes that are not UTF-8."""
    return b"\xff\xfe" + value


def truncated(chooser: random.Random, value: bytes) -> bytes:
    """Truncated JSON."""
    return value[: chooser.randrange(1, len(value) - 1)]


def null(chooser: random.Random, value: bytes) -> None:
    """No value at all."""


def deep(chooser: random.Random, value: bytes) -> bytes:
    """Well-formed JSON, ten thousand brackets deep."""
    return b"[" * 10_000 + b"]" * 10_000


def huge(chooser: random.Random, value: bytes) -> bytes:
    """Well-formed JSON of half a megabyte."""
    return b'{"padding":"' + b"x" * chooser.randrange(400_000, 600_000) + b'"}'


POISONS: tuple[Poison, ...] = (bad_utf8, truncated, null, deep)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
