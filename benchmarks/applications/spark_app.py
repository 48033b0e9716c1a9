"""The measured topologies on Spark Structured Streaming by itself: native operators only, from Kafka to Kafka.

Usage: spark_app.py TOPOLOGY SOURCE,SOURCE SINK STATE_DIR BOOTSTRAP_SERVERS CORES RECORDS_OF_BATCH

State is kept in RocksDB with a changelog. A table is read once, when the query starts: Spark does not follow its changes. It runs
in one process, or on the cluster that the environment names. With `real-time` in place of the records of a batch it runs in
Real-Time Mode, which has no state here, and needs a core for each partition of the source.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

CONNECTOR = Path(__file__).resolve().parents[2] / ".parts" / "connector"
VALUE = "id long, user string, amount long, note string"
USER = "region string, rate long"
REAL_TIME, CHECKPOINT_EVERY = "real-time", "5 seconds"
CLUSTER = "BENCH_CLUSTER"
"""The environment variable with the settings of a cluster to run on, as JSON."""


@dataclass(frozen=True, slots=True)
class Query:
    """Rows with `key` and `value`, and how Spark is to emit them."""

    rows: DataFrame
    mode: str


@dataclass(frozen=True, slots=True)
class Kafka:
    """The topics, read as `key`, `value` and `timestamp`."""

    session: SparkSession
    bootstrap_servers: str
    records_of_batch: str

    def stream(self, topic: str) -> DataFrame:
        """A topic as a stream."""
        reader = self.session.readStream.format("kafka").options(**self._options(topic))
        if self.records_of_batch != REAL_TIME:
            reader = reader.option("maxOffsetsPerTrigger", self.records_of_batch)
        return _text(reader.load())

    def snapshot(self, topic: str) -> DataFrame:
        """A topic as it is now."""
        return _text(self.session.read.format("kafka").options(**self._options(topic)).load())

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.max.poll.records": "20000",  # as Penstock's: the default of 500 is slow
            "kafka.max.partition.fetch.bytes": str(8 << 20),
        }


def _text(records: DataFrame) -> DataFrame:
    return records.select(f.col("key").cast("string"), f.col("value").cast("string"), f.col("timestamp"))


def _parsed(records: DataFrame) -> DataFrame:
    return records.select("key", "timestamp", f.from_json("value", VALUE).alias("of"))


def _pair(count: str = "n", total: str = "total") -> Column:
    return f.to_json(f.array(count, total)).alias("value")


def _totals(of: str = "of.amount") -> tuple[Column, Column]:
    return f.count("*").alias("n"), f.sum(of).alias("total")


def stateless(kafka: Kafka, source: str) -> Query:
    """(A) Filter and map."""
    kept = _parsed(kafka.stream(source)).where("of.amount % 2 = 0")
    twice = f.to_json(f.col("of").withField("amount", f.col("of.amount") * 2)).alias("value")
    return Query(kept.select("key", twice), "append")


def passed_on(kafka: Kafka, source: str) -> Query:
    """(I) Every record as it is."""
    return Query(kafka.stream(source).select("key", "value"), "update")


def totals(kafka: Kafka, source: str) -> Query:
    """(B, H) Count and sum by key."""
    return Query(_parsed(kafka.stream(source)).groupBy("key").agg(*_totals()).select("key", _pair()), "update")


def words(kafka: Kafka, source: str) -> Query:
    """(C) Word count."""
    separate = kafka.stream(source).select(f.explode(f.split("value", " ")).alias("key"))
    return Query(separate.groupBy("key").count().select("key", f.col("count").cast("string").alias("value")), "update")


def enriched(kafka: Kafka, orders: str, users: str) -> Query:
    """(D) Join with a table as it is at the start, then count and sum by region."""
    table = kafka.snapshot(users).select("key", f.from_json("value", USER).alias("user"))
    sales = _parsed(kafka.stream(orders)).join(f.broadcast(table), "key")
    sales = sales.select(f.col("user.region").alias("key"), (f.col("of.amount") * f.col("user.rate")).alias("sale"))
    return Query(sales.groupBy("key").agg(*_totals("sale")).select("key", _pair()), "update")


def hopping(kafka: Kafka, source: str) -> Query:
    """(F) Count and sum by key in hopping windows."""
    records = _parsed(kafka.stream(source)).withWatermark("timestamp", "30 seconds")
    windows = records.groupBy("key", f.window("timestamp", "10 seconds", "5 seconds")).agg(*_totals())
    return Query(windows.select(_at_start("window"), _pair()), "update")


def sessions(kafka: Kafka, source: str) -> Query:
    """(G) Count and sum of closed sessions."""
    records = _parsed(kafka.stream(source)).withWatermark("timestamp", "1 second")
    closed = records.groupBy("key", f.session_window("timestamp", "5 seconds").alias("session")).agg(*_totals())
    return Query(closed.select(_at_start("session"), _pair()), "append")


def _at_start(window: str) -> Column:
    return f.concat("key", f.lit("@"), f.unix_millis(f"{window}.start").cast("string")).alias("key")


TOPOLOGIES: Mapping[str, Callable[..., Query]] = {
    "stateless": stateless,
    "passed-on": passed_on,
    "totals": totals,
    "words": words,
    "enriched": enriched,
    "hopping": hopping,
    "sessions": sessions,
}


def open_session(cores: str) -> SparkSession:
    """Spark at its best: as many partitions as cores, and nothing that measures or rewrites small batches."""
    settings = {
        "spark.jars": ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.pollingDelay": "0",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # the other starts processes for each file
    }
    on_cluster: dict[str, str] = json.loads(os.environ.get(CLUSTER, "{}"))
    builder = SparkSession.builder.master(on_cluster.pop("master", f"local[{cores}]")).appName("bench")
    for name, value in {**settings, **on_cluster}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    """Run the query until SIGTERM."""
    name, sources, sink, state_dir, bootstrap_servers, cores, records_of_batch = sys.argv[1:]
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    session = open_session(cores)
    query = TOPOLOGIES[name](Kafka(session, bootstrap_servers, records_of_batch), *sources.split(","))
    writer: Any = query.rows.writeStream  # pyspark's types do not know `realTime` yet
    if records_of_batch == REAL_TIME:
        writer = writer.trigger(realTime=CHECKPOINT_EVERY)
    running = (
        writer.format("kafka")
        .outputMode(query.mode)
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.compression.type", "lz4")
        .option("kafka.linger.ms", "5")
        .option("topic", sink)
        .option("checkpointLocation", f"{state_dir}/checkpoint")
        .start()
    )
    while running.isActive and not over.wait(0.2):
        pass
    if running.exception() is not None:
        raise SystemExit(str(running.exception()))
    running.stop()
    session.stop()


if __name__ == "__main__":
    main()
