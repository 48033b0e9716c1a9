"""Kafka Streams' settings (`StreamsConfig`), each with its equivalent in Penstock or the reason why there is none.

`make parity` reads their names from the jars into settings.json; the names of Penstock's settings are looked up in `Config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from penstock.config import Config
from verification.conformance.parity.penstock_names import StaleNameError
from verification.conformance.parity.rules import Never

NAMES = Path(__file__).resolve().parent / "settings.json"


@dataclass(frozen=True)
class Becomes:
    """What a setting is in Penstock: its settings of these names (separated by spaces), or something else that `note` says."""

    names: str = ""
    note: str = ""


@dataclass(frozen=True)
class Client:
    """A setting of the Kafka clients: it has librdkafka's name in the table `[kafka]`."""

    name: str = ""
    note: str = ""


Equivalent = Becomes | Client | Never

_ONE_PROCESS = Never("work is not assigned to instances: one driver hands it to lanes")
_NO_STANDBY = Never("state has no replicas: an instance with `standby` waits ready to start; `state_copies` shortens its restore")
_SERDE = "given with the topology: `StreamsBuilder(key=…, value=…)`"
_LIST_SERDE = "`penstock.serdes.List(inner)`"
_OPTIMIZED = Never("topologies are not rewritten; an exchange is no topic, so that there is less to save")
_ENGINE = Never("an application has one engine for all of its stores, with settings that Penstock chooses")
_PROMETHEUS = Never("metrics are served at `/metrics`, and are always on")
_RECOVERY = "librdkafka's own name"

SETTINGS: Mapping[str, Equivalent] = {
    "acceptable.recovery.lag": _NO_STANDBY,
    "allow.os.group.write.access": Never("only its owner can read `state_dir`"),
    "application.id": Becomes(note="the first argument of `App`"),
    "application.server": Never("one driver answers queries for all lanes: see `admin_address`"),
    "bootstrap.servers": Becomes("bootstrap_servers"),
    "buffered.records.per.partition": Becomes("max_epoch_records max_epoch_bytes", "bound what is read ahead"),
    "built.in.metrics.version": _PROMETHEUS,
    "cache.max.bytes.buffering": Never("deprecated; caches emit at the end of an epoch, whatever their size"),
    "client.id": Client(),
    "commit.interval.ms": Becomes("epoch_interval"),
    "config.providers": Becomes(note="`env:NAME` and `file:PATH` as a value"),
    "connections.max.idle.ms": Client(),
    "default.client.supplier": Never("Java-only: clients are not replaced; tests need no broker"),
    "default.deserialization.exception.handler": Becomes(note="`App(…, deserialization_errors=…)`"),
    "default.dsl.store": Becomes("store_engine"),
    "default.key.serde": Becomes(note=_SERDE),
    "default.list.key.serde.inner": Becomes(note=_LIST_SERDE),
    "default.list.key.serde.type": Becomes(note=_LIST_SERDE),
    "default.list.value.serde.inner": Becomes(note=_LIST_SERDE),
    "default.list.value.serde.type": Becomes(note=_LIST_SERDE),
    "default.production.exception.handler": Becomes(note="`App(…, production_errors=…)`"),
    "default.timestamp.extractor": Becomes(note="`timestamp=` of each source"),
    "default.value.serde": Becomes(note=_SERDE),
    "deserialization.exception.handler": Becomes(note="`App(…, deserialization_errors=…)`"),
    "dsl.store.format": Never("stores that keep headers: keep what you need in the value"),
    "dsl.store.suppliers.class": Becomes("store_engine"),
    "enable.metrics.push": _PROMETHEUS,
    "ensure.explicit.internal.resource.naming": Never("`penstock plan` names each store that a change of the topology loses"),
    "errors.dead.letter.queue.topic.name": Becomes(note="`dead_letter(topic)` as a handler, or as a source's `late=`"),
    "group.protocol": Never("the group has no members: partitions are not assigned to instances"),
    "log.summary.interval.ms": Never("the log has what changes; figures are metrics"),
    "max.task.idle.ms": Never("records of an epoch are merged by time; with watermarks, windows wait for all input"),
    "max.warmup.replicas": _NO_STANDBY,
    "metadata.max.age.ms": Client("topic.metadata.refresh.interval.ms"),
    "metadata.recovery.rebootstrap.trigger.ms": Client(note=_RECOVERY),
    "metadata.recovery.strategy": Client(note=_RECOVERY),
    "metric.reporters": _PROMETHEUS,
    "metrics.num.samples": _PROMETHEUS,
    "metrics.recording.level": _PROMETHEUS,
    "metrics.sample.window.ms": _PROMETHEUS,
    "num.standby.replicas": _NO_STANDBY,
    "num.stream.threads": Becomes(
        "lanes",
        "which run in processes, not in threads: by default one for each core, as far as the widest topic has partitions; shards "
        "whose code waits are [walked in threads](../async.md#blocking-calls-in-ordinary-functions)",
    ),
    "poll.ms": Becomes("epoch_interval"),
    "probing.rebalance.interval.ms": _ONE_PROCESS,
    "processing.exception.handler": Becomes(note="`App(…, processing_errors=…)`"),
    "processing.exception.handler.global.enabled": Never("handlers always cover global tables"),
    "processing.guarantee": Becomes("guarantee", "`exactly_once` by default, or `at_least_once`"),
    "processor.wrapper.class": Never("Java-only: wrap the class or function that you pass"),
    "production.exception.handler": Becomes(note="`App(…, production_errors=…)`"),
    "rack.aware.assignment.non_overlap_cost": _ONE_PROCESS,
    "rack.aware.assignment.strategy": _ONE_PROCESS,
    "rack.aware.assignment.tags": _ONE_PROCESS,
    "rack.aware.assignment.traffic_cost": _ONE_PROCESS,
    "receive.buffer.bytes": Client("socket.receive.buffer.bytes"),
    "reconnect.backoff.max.ms": Client(),
    "reconnect.backoff.ms": Client(),
    "repartition.purge.interval.ms": Never("there are no repartition topics"),
    "replication.factor": Becomes("replication_factor"),
    "request.timeout.ms": Client("socket.timeout.ms"),
    "retry.backoff.ms": Client(),
    "rocksdb.config.setter": _ENGINE,
    "security.protocol": Client(),
    "send.buffer.bytes": Client("socket.send.buffer.bytes"),
    "state.cleanup.delay.ms": Never("lanes do not move between instances, so that nothing is left behind"),
    "state.cleanup.dir.max.age.ms": Never("lanes do not move between instances, so that nothing is left behind"),
    "state.dir": Becomes("state_dir"),
    "statestore.cache.max.bytes": Never(
        "caches emit at the end of an epoch, whatever their size; `Store(caching=False)` is without"
    ),
    "task.assignor.class": _ONE_PROCESS,
    "task.timeout.ms": Becomes("broker_timeout"),
    "topology.optimization": _OPTIMIZED,
    "upgrade.from": Never("one instance runs at a time, so that versions never work together"),
    "window.size.ms": Becomes(note="`TimeWindowed(key, window_size_ms)`"),
    "windowed.inner.class.serde": Becomes(note="`TimeWindowed(key, …)`, `SessionWindowed(key)`"),
    "windowstore.changelog.additional.retention.ms": Never("always a day, which is its default"),
}

_OWN = {field.name.removesuffix("_ms") for field in fields(Config)} | {"bootstrap_servers", "schema_registry_url"}


def said(name: str, to: Equivalent) -> str:
    """What the page says about a setting; raises if Penstock lacks a setting that it names."""
    if isinstance(to, Never):
        return f"none: {to.reason}"
    if isinstance(to, Client):
        found = f'`[kafka]` `"{to.name or name}"`'
        return f"{found}, {to.note}" if to.note else found
    unknown = set(to.names.split()) - _OWN
    if unknown:
        raise StaleNameError(f"{name}: Penstock has no setting {', '.join(sorted(unknown))}")
    return ", ".join(filter(None, [" and ".join(f"`{each}`" for each in to.names.split()), to.note]))


def load(path: Path = NAMES) -> list[str]:
    """The saved names of Kafka Streams' settings."""
    return [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]


def save(names: list[str], path: Path = NAMES) -> None:
    """Save the names, for runs without Java and for reviews of an upgrade."""
    path.write_text(json.dumps(names, indent=0) + "\n", encoding="utf-8")
