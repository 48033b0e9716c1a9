"""An application without Spark: a driver whose epochs are written by several processes, and what readers must see of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from aiokafka.client import ConnectionGroup

from penstock.config import Config
from penstock.epochs.wire import OUT
from penstock.errors import CommitError
from penstock.kafka.commit import SourceOffset
from penstock.kafka.writers.brokers import TRANSACTION, Brokers, NoAnswerError
from penstock.kafka.writers.publisher import SharedPublisher, Writing
from penstock.kafka.writers.transactions import Shared
from penstock.kafka.writers.writer import Writer
from verification.harness import topics
from verification.writers.processes import Answer, WriterProcess

if TYPE_CHECKING:
    from typing_extensions import Self

END_TXN = 26
"""The key of requests that end a transaction, in Kafka's protocol."""

ROWS = 400
"""Rows that each partition gets in an epoch."""


class LossyBrokers(Brokers):
    """Connections that can lose an answer."""

    is_losing = False
    lost = 0

    def lose_answer_of_end(self) -> None:
        """Let the next end of a transaction be carried out, but its answer be lost."""
        self.is_losing = True

    async def send(self, node: Any, request: Any, group: ConnectionGroup = ConnectionGroup.DEFAULT) -> Any:
        """Send a request; its answer may be lost."""
        answer = await super().send(node, request, group)
        if self.is_losing and request.API_KEY == END_TXN:
            self.is_losing = False
            self.lost += 1
            raise NoAnswerError("the answer is lost")
        return answer


class DriversWriting(Writing):
    """The connection of the driver, which can lose an answer."""

    def writer(self) -> tuple[LossyBrokers, Writer]:
        """Return a connection, and a writer that uses it."""
        brokers = LossyBrokers(self.settings, self.patience_s)
        return brokers, Writer(brokers, self.form)


class Application:
    """A driver and its writers. Each attempt of an epoch writes other values, so that a reader can tell them apart."""

    def __init__(self, bootstrap_servers: str, name: str, writers: int, partitions: int) -> None:
        self.servers = bootstrap_servers
        self.topic = name
        self._partitions = partitions
        self._config = Config(kafka={"bootstrap.servers": bootstrap_servers}, broker_timeout_ms=30_000)
        self._writing = Writing.of(self._config, [])
        self._numbers = itertools.count()
        self.expected: dict[int, list[bytes]] = defaultdict(list)
        self.epochs = 0
        topics.create(bootstrap_servers, name, partitions)
        self.driver = self.new_driver()
        self.writers = [WriterProcess(self._writing) for _ in range(writers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for writer in self.writers:
            writer.kill()
        self.driver.close()

    def new_driver(self) -> SharedPublisher:
        """Start another driver, which fences the one before it."""
        driver = SharedPublisher(
            DriversWriting(*self._writing), self.topic, self.topic, [self.topic], self._config.transaction_timeout_ms
        )
        driver.start()
        return driver

    def another_writer(self) -> WriterProcess:
        """Start another writer."""
        return WriterProcess(self._writing)

    def replace(self, number: int) -> None:
        """Start another process in place of a writer."""
        self.writers[number].kill()
        self.writers[number] = self.another_writer()

    @property
    def driver_brokers(self) -> LossyBrokers:
        """The connections of the driver."""
        found = self.driver._brokers
        assert isinstance(found, LossyBrokers)
        return found

    def coordinator(self) -> int:
        """Return the id of the broker that coordinates the transactions."""
        return self.driver_brokers.run(self.driver_brokers._coordinator(TRANSACTION, self.topic))

    def begin(self) -> tuple[Shared, dict[int, list[bytes]]]:
        """Begin an attempt: a transaction, and let all writers write; return the values of each partition."""
        shared = self.driver.transactions.begin()
        return shared, self.write_again(shared)

    def write_again(self, shared: Shared) -> dict[int, list[bytes]]:
        """Let all writers write other values in a transaction."""
        attempt = next(self._numbers)
        values = {number: [b"%d-%d-%d" % (attempt, number, row) for row in range(ROWS)] for number in range(self._partitions)}
        for index, writer in enumerate(self.writers):
            writer.write(shared, {(self.topic, number): _table(values[number]) for number in self._parts_of(index)})
        return values

    def answers(self) -> list[Answer | None]:
        """Wait for all writers."""
        return [writer.answer() for writer in self.writers]

    def commit(self, answers: list[Answer | None], values: Mapping[int, list[bytes]]) -> None:
        """Commit the attempt, with an offset and a row of the driver; from then on readers must see it."""
        for answer in answers:
            if answer is None or answer.error:
                raise CommitError(f"A writer has failed: {answer}")
            self.driver.transactions.wrote(answer.written)
        own = b"driver-%d" % self.epochs
        self.driver.begin()
        self.driver.produce(_table([own], partition=0).to_batches()[0])
        self.driver.send_offsets([SourceOffset(self.topic, 0, self.epochs + 1, "")])
        while not self.driver.commit():
            pass
        for number, added in values.items():
            self.expected[number] += added
        self.expected[0].append(own)
        self.epochs += 1

    def step(self) -> None:
        """Run and commit one epoch."""
        _, values = self.begin()
        self.commit(self.answers(), values)

    def differences(self) -> list[str]:
        """Compare what a reader of committed records sees with what was committed."""
        topics.wait_until_settled(self.servers, self.topic)
        found: dict[int, list[bytes | None]] = defaultdict(list)
        for record in topics.read(self.servers, self.topic):
            found[record.partition].append(record.value)
        wrong = []
        for number in range(self._partitions):
            if found[number] != self.expected[number]:
                more = [value for value in found[number] if value not in set(self.expected[number])]
                wrong.append(
                    f"{self.topic}-{number}: {len(found[number])} rows instead of {len(self.expected[number])}; "
                    f"{len(more)} that were never committed, such as {more[:1]}"
                )
        return wrong

    def _parts_of(self, writer: int) -> range:
        return range(writer, self._partitions, len(self.writers))


def _table(values: list[bytes], partition: int | None = None) -> pa.Table:
    rows = [
        {"kind": 1, "name": 0, "partition": partition, "timestamp": 1, "key": b"k", "value": value, "stage": 0}
        for value in values
    ]
    return pa.Table.from_pylist(rows, schema=OUT)
