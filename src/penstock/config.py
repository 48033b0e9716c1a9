"""`Config`: every setting under one name, in `penstock.toml`, the environment and as an argument; checked once, secrets masked.

It only holds settings: other rooms turn them into those of Kafka clients and of Spark.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError
from penstock.serdes.registry.settings import RegistrySettings
from penstock.setting_values import (
    CHOICES,
    DEFAULT_FILE,
    RANGES,
    REFERENCES,
    SHORT,
    SWITCHES,
    TABLES,
    Guarantee,
    check_range,
    field_of,
    from_environment,
    merge,
    read_toml,
    text_of,
)
from penstock.settings import (
    Secret,
    Settings,
    check_copies,
    check_kafka,
    check_spark,
    check_writers,
    endpoint,
    is_local,
    port_range,
    resolved,
    revealed,
)
from penstock.state.remote.accepting import ANY_PORT, Ports
from penstock.tokens import TokenProvider, TokenSource, check_mechanism

_log = logging.getLogger(__name__)

__all__ = ["OFF", "Config", "Guarantee"]

OFF = "off"
"""The `admin_address` for no admin server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How an application runs; `load` reads it.

    Attributes:
        kafka: Client settings by librdkafka's names; `bootstrap.servers` is required. They apply to all clients; with one of
            Kafka Streams' prefixes `producer.`, `main.consumer.` (of the source topics) and `restore.consumer.`, to that
            client only. `env:NAME` or `file:PATH` reads a value from there.
        spark: `master`, and any setting that begins with `spark.`. `env:NAME` is read from there, and `file:PATH` in place of a
            secret.
        token_provider: For brokers with OAUTHBEARER: a function that returns a `penstock.tokens.Token`, or the name of an entry
            point of the group `penstock.token_providers` (docs/security.md).
        schema_registry: How to reach the schema registry, by Confluent's names: `url`, `basic.auth.user.info` or
            `bearer.auth.token`, `ssl.ca.location` and others (docs/schema-registry.md), with references as in `kafka`.
        guarantee: Exactly once, or at least once.
        lanes: How many lanes share the work, at most one per shard; by default, one per core, as far as there are shards. On a
            cluster it must be set.
        shards: How many shards the keys are divided into, each with stores and a stream time of its own: the largest number of
            lanes ever possible. Fixed at the first start; by default, the partitions of the widest source topic at that time.
        epoch_interval_ms: The minimum time between the starts of two epochs; the setting is `epoch_interval`, a duration. By
            default 100 ms, and 50 ms with the local engine.
        max_epoch_records: The most records of an epoch.
        max_epoch_bytes: About how many bytes of records an epoch may read, and how many bytes of results it may have; by default,
            an eighth of Spark's memory (`spark.driver.memory`), or less on a small machine.
        engine: `spark`: lanes run in tasks of Spark, on this machine or on a cluster; or `local`: in processes of the
            application, without Java.
        small_epoch_records: On one machine, an epoch of at most this many records runs in one slot.
        blocking_threads: How many threads of a slot may walk shards at the same time while functions wait for other systems; with
            1, none: then functions need not be thread-safe.
        large_backlog_records: When more records than this wait, slots read them for themselves, each its share of the partitions.
        epochs_in_flight: How many epochs may not be committed yet when the next begins; with 0, each is committed first.
        state_dir: The directory of the stores.
        writers: Who writes results and changelogs: the `driver`, or, on a cluster, the `executors`, in the same transaction.
        state_copies: Where copies of lanes are kept: a directory that all hosts reach, or a URI that pyarrow knows (`s3://`, `gs://`,
            `hdfs://`), with credentials from the environment. None for no copies.
        state_copy_interval_ms: How often lanes are copied there; the setting is `state_copy_interval`.
        store_engine: `lmdb`, or `rocksdb` for state larger than memory.
        on_lost_input: If a source topic no longer has the next records: `fail`, or `continue` and count them as skipped.
        transaction_timeout_ms: After how long the broker aborts an open transaction; the setting is `transaction_timeout`.
        broker_timeout_ms: How long the brokers may be unreachable before the application ends; `broker_timeout`.
        create_topics: Whether a start creates topics of the topology that do not exist, except those of patterns.
        topic_partitions: The number of partitions of topics that `create_topics` creates.
        replication_factor: Of internal topics, and of those that `create_topics` creates; -1 is the broker's default.
        cluster_ports: On a cluster, the ports at which the driver, slots and lane servers listen, such as `7100-7199`; any
            that are free by default.
        epoch_timeout_ms: How long an epoch may take, and a restore stand still, before the application counts as stuck and ends;
            `epoch_timeout`.
        standby: Whether it waits, ready to start, while another instance is active, and takes over when that one ends.
        standby_address: Where standbys reach this instance when it is active, `host:port`; port 0 is any free one.
        standby_timeout_ms: How long the active instance may be silent before a standby takes over; `standby_timeout`.
        admin_address: Where the admin server listens, `host:port`; port 0 is any free one, `off` is none. Any address but
            loopback needs `admin_token`, `admin_certificate` and `admin_key`.
        admin_token: The token (`Authorization: Bearer …`) for requests that read and change; `env:NAME` or `file:PATH`, too.
        admin_read_token: The token for requests that only read.
        admin_certificate: The server's certificate chain, a PEM file.
        admin_key: Its private key, a PEM file.
        admin_hosts: Additional names that the admin server accepts in the `Host` header.
        log_format: `json`, `text`, or `auto`: text on a terminal, JSON elsewhere.
        log_level: The lowest level to log.
        plugins: Names of plug-ins (entry points of the group `penstock.plugins`) to load.
        columns: Whether counts and expressions are computed in columns where they can be; the results are the same.
        tracing: Whether results continue the traces of their records (`traceparent` headers).

    Example:
        >>> from penstock.config import Config
        >>> config = Config.load(environment={"PENSTOCK_LANES": "2"}, bootstrap_servers="localhost:9092", epoch_interval="50ms")
        >>> config.lanes, config.epoch_interval_ms, config.kafka
        (2, 50, {'bootstrap.servers': 'localhost:9092'})
    """

    kafka: Mapping[str, str]
    spark: Mapping[str, str] = field(default_factory=dict)
    schema_registry: Mapping[str, str] = field(default_factory=dict)
    token_provider: str | TokenProvider | TokenSource | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    lanes: int | None = None
    shards: int | None = None
    epoch_interval_ms: int | None = None
    max_epoch_records: int = 500_000
    max_epoch_bytes: int | None = None
    engine: str = "spark"
    small_epoch_records: int = 2_000
    blocking_threads: int = 64
    large_backlog_records: int = 50_000
    epochs_in_flight: int = 1
    state_dir: Path = Path("state")
    state_copies: str | None = None
    state_copy_interval_ms: int = 600_000
    writers: str = "driver"
    store_engine: str = "lmdb"
    on_lost_input: str = "fail"
    transaction_timeout_ms: int = 60_000
    broker_timeout_ms: int = 120_000
    create_topics: bool = False
    topic_partitions: int = 4
    replication_factor: int = -1
    cluster_ports: str | None = None
    epoch_timeout_ms: int = 300_000
    standby: bool = False
    standby_address: str = "127.0.0.1:0"
    standby_timeout_ms: int = 10_000
    admin_address: str = "127.0.0.1:7070"
    admin_token: str | None = None
    admin_read_token: str | None = None
    admin_certificate: Path | None = None
    admin_key: Path | None = None
    admin_hosts: tuple[str, ...] = ()
    log_format: str = "auto"
    log_level: str = "INFO"
    plugins: tuple[str, ...] = ()
    columns: bool = True
    tracing: bool = False

    def __post_init__(self) -> None:
        """Raise if a setting cannot work, however the object was created."""
        for name in TABLES:
            object.__setattr__(self, name, Settings(getattr(self, name)))
        for name in REFERENCES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Secret(getattr(self, name)))
        for name, (low, high) in RANGES.items():
            check_range(name, getattr(self, field_of(name)), low, high)
        if self.replication_factor == 0:
            raise ConfigError("replication_factor: 0 would keep no replica. Set 1 or more, or -1 for the broker's default.")
        if self.lanes is not None and self.shards is not None and self.lanes > self.shards:
            raise ConfigError(
                f"lanes: {self.lanes} lanes cannot share {self.shards} shards: each lane needs at least one. Set lanes to "
                f"{self.shards} or less, or leave it out. More shards need a reset: they are fixed at the first start."
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}: expected one of {', '.join(choices)}.")
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false.")
        _ = self.admin_endpoint, self.standby_endpoint, self.ports
        if self.standby and self.guarantee is not Guarantee.EXACTLY_ONCE:
            raise ConfigError("standby: needs guarantee = exactly_once: only transactions fence the instance that is replaced.")
        check_kafka(self.kafka, is_exactly_once=self.guarantee is Guarantee.EXACTLY_ONCE)
        check_spark(self.spark)
        check_copies(self.state_copies, self.store_engine)
        if self.is_spread and self.lanes is None:
            raise ConfigError("lanes: not set. On a cluster, set it to the cores that all executors have together, less one.")
        if self.executors_write:
            check_writers(self.is_spread, self.guarantee is Guarantee.EXACTLY_ONCE, self.tracing, self.token_provider is not None)
        if self.token_provider is not None:
            check_mechanism(self.kafka)
            given, patience_s = self.token_provider, self.broker_timeout_ms / 1_000
            source = given.with_patience(patience_s) if isinstance(given, TokenSource) else TokenSource(given, patience_s)
            object.__setattr__(self, "token_provider", source)
        _ = self.registry_settings

    @property
    def registry_settings(self) -> RegistrySettings | None:
        """How to reach the schema registry, with its secrets as plain text; None if there is none. Do not show the result."""
        return RegistrySettings.of(revealed(self.schema_registry)) if self.schema_registry else None

    @property
    def interval_s(self) -> float:
        """The least time between the starts of two epochs: shorter with the local engine, which is for few records."""
        given, default = self.epoch_interval_ms, 50 if self.engine == "local" else 100
        return (default if given is None else given) / 1_000

    @property
    def is_spread(self) -> bool:
        """Whether lanes run on the hosts of a cluster."""
        return self.engine == "spark" and not is_local(self.spark)

    @property
    def ports(self) -> Ports:
        """The ports at which the hosts of a cluster listen."""
        return ANY_PORT if self.cluster_ports is None else port_range("cluster_ports", self.cluster_ports)

    @property
    def executors_write(self) -> bool:
        """Whether executors write results and changelogs."""
        return self.writers == "executors"

    @property
    def tokens(self) -> TokenSource | None:
        """Where clients get their tokens; None if they need none."""
        return self.token_provider if isinstance(self.token_provider, TokenSource) else None

    @property
    def admin_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the admin server; None for no server."""
        return None if self.admin_address == OFF else endpoint("admin_address", self.admin_address, f" or {OFF!r}")

    @property
    def standby_endpoint(self) -> tuple[str, int]:
        """Host and port where standbys reach this instance."""
        return endpoint("standby_address", self.standby_address)

    @classmethod
    def load(cls, path: Path | None = None, environment: Mapping[str, str] | None = None, **overrides: object) -> Config:
        """Read the configuration from a TOML file (`penstock.toml` if it exists), the environment and arguments; the last wins.

        `bootstrap_servers` is short for `bootstrap.servers` of `kafka`, `schema_registry_url` for `url` of `schema_registry`. The
        tables are merged by name.
        """
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {table: {} for table in TABLES}
        if path is not None or DEFAULT_FILE.is_file():
            source = path or DEFAULT_FILE
            merge(given, read_toml(source), str(source), _NAMES)
        merge(given, from_environment(environment, _NAMES), "environment", _NAMES)
        merge(given, overrides, "arguments", _NAMES)
        for table in TABLES:
            given[table] = {name: resolved(name, text_of(name, value), environment) for name, value in given[table].items()}
        for name in REFERENCES:
            if name in given:
                given[name] = resolved(name, text_of(name, given[name]), environment)
        config = cls(**{field_of(name): value for name, value in given.items()})
        if config.kafka.get("security.protocol", "").upper() == "SASL_PLAINTEXT":
            _log.warning("kafka: security.protocol SASL_PLAINTEXT does not encrypt anything; use SASL_SSL")
        registry = config.registry_settings
        if registry is not None and registry.exposes_credentials:
            _log.warning("schema_registry: credentials are sent to an http:// URL, which does not encrypt them; use https://")
        return config


_NAMES = (*(field.name.removesuffix("_ms") for field in fields(Config)), *SHORT)
