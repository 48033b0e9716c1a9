"""How fast several writers are in one transaction, beside librdkafka's single producer, and how long a commit takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from penstock.config import Config
from penstock.epochs.wire import OUT
from penstock.kafka.commit import SourceOffset
from penstock.kafka.partitioner import by_partition
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.writers.brokers import Brokers
from penstock.kafka.writers.publisher import SharedPublisher, Writing
from penstock.kafka.writers.transactions import Shared
from penstock.kafka.writers.writer import Writer
from verification.harness import topics
from verification.harness.processes import HarnessError
from verification.writers.processes import WriterProcess

SINGLE = "driver"
_PARTITIONS = 32
_VALUE = b"v" * 80


def rows_per_second(servers: str, counts: Sequence[int], rows: int, rounds: int) -> dict[str, float]:
    """Return the best rate of each number of writers, and that of the driver's own producer, in turn."""
    topics.create(servers, "speed", _PARTITIONS)
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, seconds in [
            (SINGLE, _by_driver(servers, rows)),
            *((str(count), _by(servers, count, rows)) for count in counts),
        ]:
            best[name] = max(best.get(name, 0.0), round(rows / seconds))
    return best


def commit_times(servers: str, writers: Sequence[int], partitions: Sequence[int], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median milliseconds to write one row to each partition, and to commit, by writers and partitions."""
    found = {}
    for count in partitions:
        topics.create(servers, topic := f"commit-{count}", count)
        for number in writers:
            times = sorted(_committed(servers, topic, number, count, rounds))
            wrote, ended = times[len(times) // 2]
            found[f"{number} writers, {count} partitions"] = {"write_ms": round(wrote, 1), "commit_ms": round(ended, 1)}
    return found


def _config(servers: str) -> Config:
    return Config(kafka={"bootstrap.servers": servers}, broker_timeout_ms=60_000)


def _table(rows: int, partitions: int) -> pa.Table:
    columns = {
        "kind": pa.array([1] * rows, pa.int8()),
        "name": pa.array([0] * rows, pa.int16()),
        "partition": pa.array([row % partitions for row in range(rows)], pa.int32()),
        "timestamp": pa.array([1] * rows, pa.int64()),
        "key": pa.array([b"%08d" % row for row in range(rows)]),
        "value": pa.array([_VALUE] * rows),
    }
    return pa.Table.from_arrays([columns.get(field.name, pa.nulls(rows, field.type)) for field in OUT], schema=OUT)


def _by_driver(servers: str, rows: int) -> float:
    """Return how many seconds one transaction takes with librdkafka's producer."""
    publisher = TransactionalPublisher(_config(servers), "speed-driver", "speed-driver", ["speed"])
    publisher.start()
    began = 0.0
    try:
        for count in (1_000, rows):  # the first is a warm-up
            table = _table(count, _PARTITIONS)
            began = time.monotonic()
            publisher.begin()
            for batch in table.to_batches():
                publisher.produce(batch)
            publisher.send_offsets([SourceOffset("speed", 0, 1, "")])
            if not publisher.commit():
                raise HarnessError("the commit takes too long")
        return time.monotonic() - began
    finally:
        publisher.close()


def _by(servers: str, writers: int, rows: int) -> float:
    """Return how many seconds one transaction takes with so many writers, each a process."""
    writing = Writing.of(_config(servers), [])
    driver = SharedPublisher(writing, "speed-shared", "speed-shared", ["speed"], 60_000)
    driver.start()
    processes = [WriterProcess(writing) for _ in range(writers)]
    began = 0.0
    try:
        for count in (1_000, rows):
            groups = sorted(by_partition(_table(count, _PARTITIONS), ["speed"]).items())
            parts = [dict(groups[number::writers]) for number in range(writers)]
            for process, part in zip(processes, parts, strict=True):
                process.receive(part)  # not part of the time: Spark's exchange brings rows to executors
            began = time.monotonic()
            shared = driver.transactions.begin()
            for process in processes:
                process.begin(shared)
            for process in processes:
                answer = process.answer()
                if answer is None or answer.error:
                    raise HarnessError(f"a writer has failed: {answer}")
                driver.transactions.wrote(answer.written)
            driver.send_offsets([SourceOffset("speed", 0, 1, "")])
            if not driver.commit():
                raise HarnessError("the commit takes too long")
        return time.monotonic() - began
    finally:
        for process in processes:
            process.kill()
        driver.close()


def _committed(servers: str, topic: str, writers: int, partitions: int, rounds: int) -> list[tuple[float, float]]:
    """Return the milliseconds to write and to commit, in several rounds; writers are threads, each with its connections."""
    writing = Writing.of(_config(servers), [])
    driver = SharedPublisher(writing, f"{topic}-{writers}", topic, [topic], 60_000)
    driver.start()
    own: list[tuple[Brokers, Writer]] = [writing.writer() for _ in range(writers)]
    groups = sorted(by_partition(_table(partitions, partitions), [topic]).items())
    parts = [dict(groups[number::writers]) for number in range(writers)]
    times = []
    try:
        with ThreadPoolExecutor(writers) as threads:
            for _ in range(rounds + 1):
                began = time.monotonic()
                shared = driver.transactions.begin()

                def write(writer: Writer, part: dict[tuple[str, int], pa.Table], shared: Shared = shared) -> None:
                    writer.write(shared.identity, part, shared.opened)

                list(threads.map(write, [writer for _, writer in own], parts))
                for part in parts:
                    driver.transactions.wrote({place: table.num_rows for place, table in part.items()})
                wrote = time.monotonic()
                driver.send_offsets([SourceOffset(topic, 0, 1, "")])
                if not driver.commit():
                    raise HarnessError("the commit takes too long")
                times.append(((wrote - began) * 1_000, (time.monotonic() - wrote) * 1_000))
    finally:
        for brokers, _ in own:
            brokers.close()
        driver.close()
    return times[1:]
