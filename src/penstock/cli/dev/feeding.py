"""What brokers need before an application can be tried on them: its topics, and sample records in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.app import App
from penstock.cli.samples.records import Sample, Samples, source_of
from penstock.config import Config
from penstock.epochs.wire import OUT
from penstock.errors import BrokerError, ConfigError, SerializationError
from penstock.history.truth import Truth, program_of
from penstock.kafka.clients import producer_settings, reach_brokers
from penstock.kafka.producer import RowProducer
from penstock.kafka.topics import InternalTopic, Topics
from penstock.serdes import Serde
from penstock.topology import SourceNode

_ROWS = pa.schema([OUT.field(name) for name in ("name", "partition", "timestamp", "key", "value", "headers")])
_LOOK_EVERY_S = 0.1
KEPT = {"retention.ms": "-1"}
"""Of topics that are created: samples may have old timestamps, and so do their results. Brokers would soon delete them."""


class Prepared(NamedTuple):
    """The topics that were created, and how many records were sent."""

    created: list[str]
    sent: int


def prepare_brokers(app: App, config: Config, samples: Samples) -> Prepared:
    """Create the topics that the topology names, and those of the samples; then send the samples."""
    topics = Topics(_ready_brokers(config), config.broker_timeout_ms)
    program = program_of(app.application_id, app.topology, app.error_handlers, config, incarnation="")
    missing = {topic.name: replace(topic, config=KEPT) for topic in Truth(app.topology, program, config, topics).missing_topics()}
    everything = [*samples.global_tables, *samples.streams]
    named = {sample.topic for sample in everything}
    for name in named - topics.describe(named).keys():  # those that a source reads by a pattern
        missing[name] = InternalTopic(name, config.topic_partitions, KEPT)
    topics.ensure(list(missing.values()), config.replication_factor)
    sources = {name: node for name, node in program.nodes.items() if isinstance(node, SourceNode)}
    send_samples(app, config, everything, sources)
    return Prepared(sorted(missing), len(everything))


def _ready_brokers(config: Config) -> Any:
    """Return an admin client, once there is a broker that topics can be created on: one that starts answers before."""
    admin = reach_brokers(config)
    deadline = time.monotonic() + config.broker_timeout_ms / 1_000
    while not admin.list_topics(timeout=config.broker_timeout_ms / 1_000).brokers:
        if time.monotonic() > deadline:
            raise BrokerError(f"The cluster at {config.kafka['bootstrap.servers']} has no broker that takes part. See its log.")
        time.sleep(_LOOK_EVERY_S)
    return admin


def send_samples(app: App, config: Config, samples: Sequence[Sample], sources: dict[str, SourceNode]) -> None:
    """Send samples in their order, and wait until all are delivered. `sources` are bound to the schema registry."""
    if not samples:
        return
    names = sorted({sample.topic for sample in samples})
    serdes = {name: _serdes(sources[source_of(app.topology, name).name], name) for name in names}
    batch = pa.RecordBatch.from_pylist([_row(sample, names, *serdes[sample.topic]) for sample in samples], schema=_ROWS)
    producer = RowProducer(producer_settings(config), names, config.broker_timeout_ms)
    producer.produce(batch)
    unsent = producer.client.flush(config.broker_timeout_ms / 1_000)
    failure = producer.delivery_failure()
    producer.client.close()
    if failure is not None:
        raise failure
    if unsent:
        raise BrokerError(f"{unsent} sample records were not delivered in {config.broker_timeout_ms / 1_000:g} s.")


def _serdes(source: SourceNode, topic: str) -> tuple[Serde[Any], Serde[Any]]:
    return source.key.for_topic(topic, is_key=True), source.value.for_topic(topic, is_key=False)


def _row(sample: Sample, names: Sequence[str], key: Serde[Any], value: Serde[Any]) -> dict[str, Any]:
    try:
        key_bytes = None if sample.key is None else key.serialize(sample.key)
        value_bytes = None if sample.value is None else value.serialize(sample.value)
    except SerializationError as error:
        raise ConfigError(f"{sample.place}: {error}") from error
    return {
        "name": names.index(sample.topic),
        "partition": None,
        "timestamp": sample.timestamp,
        "key": key_bytes,
        "value": value_bytes,
        "headers": [{"name": name, "value": content} for name, content in sample.headers] or None,
    }
