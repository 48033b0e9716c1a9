"""`Config`: every setting under one name, in `penstock.toml`, the environment and as an argument; checked once, secrets masked.

It only holds settings: other rooms turn them into those of Kafka clients and of Spark.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, TopologyError
from penstock.serdes.registry.settings import RegistrySettings
from penstock.settings import Secret, Settings, check_kafka, check_spark, check_writers, is_local, resolved, revealed
from penstock.timing import duration_ms
from penstock.tokens import TokenProvider, TokenSource, check_mechanism

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # not there on newer Pythons

_log = logging.getLogger(__name__)

DEFAULT_FILE = Path("penstock.toml")
VARIABLE_PREFIX = "PENSTOCK_"
_TABLES = ("kafka", "spark", "schema_registry")
_SHORT = {"bootstrap_servers": ("kafka", "bootstrap.servers"), "schema_registry_url": ("schema_registry", "url")}
"""Settings of tables that have a name of their own."""
_MAX_INT32 = 2**31 - 1
_MAX_PORT = 65_535
_RANGES = {
    "lanes": (1, 10_000),
    "shards": (1, 10_000),
    "epoch_interval": (0, _MAX_INT32),
    "max_epoch_records": (1, _MAX_INT32),
    "max_epoch_bytes": (1, 1 << 40),
    "worker_epoch_records": (0, _MAX_INT32),
    "small_epoch_records": (0, _MAX_INT32),
    "epochs_in_flight": (0, 8),
    "transaction_timeout": (1_000, _MAX_INT32),
    "broker_timeout": (1_000, _MAX_INT32),
    "replication_factor": (-1, 32_767),
    "topic_partitions": (1, 10_000),
    "epoch_timeout": (1_000, _MAX_INT32),
}
_DURATIONS = ("epoch_interval", "transaction_timeout", "broker_timeout", "epoch_timeout")
_CHOICES = {
    "engine": ("spark", "local"),
    "store_engine": ("lmdb", "rocksdb"),
    "on_lost_input": ("fail", "continue"),
    "writers": ("driver", "executors"),
    "log_format": ("auto", "json", "text"),
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
}
_PATHS = ("state_dir", "admin_certificate", "admin_key")
_LISTS, _SWITCHES = ("admin_hosts", "plugins"), ("columns", "create_topics", "tracing")
_REFERENCES = ("admin_token", "admin_read_token")
OFF = "off"
"""The `admin_address` for no admin server."""


class Guarantee(Enum):
    """How often a record takes effect if there is a failure."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How an application runs; `load` reads it.

    Attributes:
        kafka: Client settings by librdkafka's names; `bootstrap.servers` is required. They apply to all clients; with one of
            Kafka Streams' prefixes `producer.`, `main.consumer.` (Spark's reader: the Java client's names) and
            `restore.consumer.`, to that client only. `env:NAME` or `file:PATH` reads a value from there.
        spark: `master`, and any setting that begins with `spark.`. `env:NAME` is read from there, and `file:PATH` in place of a
            secret.
        token_provider: For brokers with OAUTHBEARER: a function that returns a `penstock.tokens.Token`, or the name of an entry
            point of the group `penstock.token_providers` (docs/security.md).
        schema_registry: How to reach the schema registry, by Confluent's names: `url`, `basic.auth.user.info` or
            `bearer.auth.token`, `ssl.ca.location` and others (docs/schema-registry.md), with references as in `kafka`.
        guarantee: Exactly once, or at least once.
        lanes: How many lanes share the work, at most one per shard; by default, one per core.
        shards: How many shards the keys are divided into: the largest number of lanes ever possible. Fixed at the first start;
            by default 4 for each lane, and at least 8.
        epoch_interval_ms: How long an epoch waits for records; the setting is `epoch_interval`, a duration. By default 100 ms,
            and 50 ms with the local engine.
        max_epoch_records: The most records of an epoch.
        max_epoch_bytes: About how many bytes of records an epoch may read, and how many bytes of results it may have; by default,
            an eighth of Spark's memory (`spark.driver.memory`), or less on a small machine.
        engine: `spark`, or `local` to run without Java: all epochs run in worker processes of the application.
        worker_epoch_records: An epoch of at most this many records runs in worker processes, a larger one as a Spark job; with
            0, all epochs are Spark jobs. By default, worker processes run all epochs with up to 4 lanes, and those of up to
            50,000 records with more.
        small_epoch_records: An epoch of at most this many records runs in one task.
        epochs_in_flight: How many epochs may not be committed yet when the next begins; with 0, each is committed first.
        state_dir: The directory of the stores.
        writers: Who writes results and changelogs: the `driver`, or, on a cluster, the `executors`, in the same transaction.
        store_engine: `lmdb`, or `rocksdb` for state larger than memory.
        on_lost_input: If a source topic no longer has the next records: `fail`, or `continue` and count them as skipped.
        transaction_timeout_ms: After how long the broker aborts an open transaction; the setting is `transaction_timeout`.
        broker_timeout_ms: How long the brokers may be unreachable before the application ends; `broker_timeout`.
        create_topics: Whether a start creates topics of the topology that do not exist, except those of patterns.
        topic_partitions: The number of partitions of topics that `create_topics` creates.
        replication_factor: Of internal topics, and of those that `create_topics` creates; -1 is the broker's default.
        epoch_timeout_ms: How long an epoch may take before the application counts as stuck and ends; `epoch_timeout`.
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
    worker_epoch_records: int | None = None
    small_epoch_records: int = 2_000
    epochs_in_flight: int = 1
    state_dir: Path = Path("state")
    writers: str = "driver"
    store_engine: str = "lmdb"
    on_lost_input: str = "fail"
    transaction_timeout_ms: int = 60_000
    broker_timeout_ms: int = 120_000
    create_topics: bool = False
    topic_partitions: int = 4
    replication_factor: int = -1
    epoch_timeout_ms: int = 300_000
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
        for name in _TABLES:
            object.__setattr__(self, name, Settings(getattr(self, name)))
        for name in _REFERENCES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Secret(getattr(self, name)))
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, _field_of(name)), low, high)
        if self.replication_factor == 0:
            raise ConfigError("replication_factor: 0 would keep no replica. Set 1 or more, or -1 for the broker's default.")
        if self.lanes is not None and self.shards is not None and self.lanes > self.shards:
            raise ConfigError(
                f"lanes: {self.lanes} lanes cannot share {self.shards} shards: each lane needs at least one. Set lanes to "
                f"{self.shards} or less, or leave it out. More shards need a reset: they are fixed at the first start."
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}: expected one of {', '.join(choices)}.")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: expected true or false.")
        _ = self.admin_endpoint
        check_kafka(self.kafka, is_exactly_once=self.guarantee is Guarantee.EXACTLY_ONCE)
        check_spark(self.spark)
        if self.is_spread and self.lanes is None:
            raise ConfigError("lanes: not set. On a cluster, set it to the number of cores that all executors have together.")
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
    def executors_write(self) -> bool:
        """Whether executors write results and changelogs."""
        return self.writers == "executors"

    @property
    def has_workers(self) -> bool:
        """Whether worker processes of the driver run epochs: all of them, or small ones."""
        return self.engine == "local" or (is_local(self.spark) and self.worker_epoch_records != 0)

    @property
    def tokens(self) -> TokenSource | None:
        """Where clients get their tokens; None if they need none."""
        return self.token_provider if isinstance(self.token_provider, TokenSource) else None

    @property
    def admin_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the admin server; None for no server."""
        if self.admin_address == OFF:
            return None
        host, _, port = str(self.admin_address).rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MAX_PORT:
            raise ConfigError(f"admin_address: expected host:port or {OFF!r}.")
        return host.strip("[]"), int(port)

    @classmethod
    def load(cls, path: Path | None = None, environment: Mapping[str, str] | None = None, **overrides: object) -> Config:
        """Read the configuration from a TOML file (`penstock.toml` if it exists), the environment and arguments; the last wins.

        `bootstrap_servers` is short for `bootstrap.servers` of `kafka`, `schema_registry_url` for `url` of `schema_registry`. The
        tables are merged by name.
        """
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {table: {} for table in _TABLES}
        if path is not None or DEFAULT_FILE.is_file():
            source = path or DEFAULT_FILE
            _merge(given, _read_toml(source), str(source))
        _merge(given, _from_environment(environment), "environment")
        _merge(given, overrides, "arguments")
        for table in _TABLES:
            given[table] = {name: resolved(name, _text(name, value), environment) for name, value in given[table].items()}
        for name in _REFERENCES:
            if name in given:
                given[name] = resolved(name, _text(name, given[name]), environment)
        config = cls(**{_field_of(name): value for name, value in given.items()})
        if config.kafka.get("security.protocol", "").upper() == "SASL_PLAINTEXT":
            _log.warning("kafka: security.protocol SASL_PLAINTEXT does not encrypt anything; use SASL_SSL")
        registry = config.registry_settings
        if registry is not None and registry.has_credentials and any(url.startswith("http:") for url in registry.urls):
            _log.warning("schema_registry: credentials are sent to an http:// URL, which does not encrypt them; use https://")
        return config


_FIELDS = tuple(f.name for f in fields(Config))
_NAMES = (*(name.removesuffix("_ms") for name in _FIELDS), *_SHORT)


def _field_of(name: str) -> str:
    return f"{name}_ms" if name in _DURATIONS else name


def _read_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            settings: dict[str, object] = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"Cannot read {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from None
    return settings


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """The settings of our variables. A misspelt one is an error; an unrelated variable may have the same prefix."""
    given: dict[str, object] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(VARIABLE_PREFIX).lower()
        if not variable.startswith(VARIABLE_PREFIX) or variable.startswith(f"{VARIABLE_PREFIX}FAULT"):
            continue
        if name in _NAMES and name not in _TABLES:
            given[name] = setting_of_text(name, text)
        elif nearest := get_close_matches(name, _NAMES, n=1, cutoff=0.8):
            raise ConfigError(f"environment: unknown variable {variable}. Did you mean {VARIABLE_PREFIX}{nearest[0].upper()}?")
    return given


def setting_of_text(name: str, text: str) -> object:
    """Convert a setting from the text of an environment variable or a command line."""
    return _whole(text) if name in _RANGES and name not in _DURATIONS else text


def _whole(text: str) -> int | str:
    """The number, if the text is one; other text is refused later, by name."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else text


def _merge(given: dict[str, Any], more: Mapping[str, object], source: str) -> None:
    for name, value in more.items():
        if name in _SHORT:
            table, full_name = _SHORT[name]
            given[table][full_name] = value
        elif name in _TABLES:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}: {name} must be a table of settings, not {type(value).__name__}.")
            given[name].update(_flat(value))
        elif name in _NAMES:
            given[name] = _read(name, value)
        else:
            nearest = get_close_matches(name, _NAMES, n=1)
            cure = f"Did you mean {nearest[0]!r}?" if nearest else f"Known settings: {', '.join(sorted(_NAMES))}."
            raise ConfigError(f"{source}: unknown setting {name!a}. {cure}")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables: TOML reads `bootstrap.servers = …` without quotes as a table within a table."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _read(name: str, value: Any) -> object:
    """Convert a setting to the type of its field; values that cannot be converted are left to the checks."""
    if name in _DURATIONS:
        try:
            return duration_ms(value, name)  # raises for other types
        except TopologyError:
            raise ConfigError(f'{name}: expected a number and a unit, such as "250ms", "5s" or "1h".') from None
    if name == "guarantee" and not isinstance(value, Guarantee):
        kinds = [kind.value for kind in Guarantee]
        if value not in kinds:
            raise ConfigError(f"guarantee: expected one of {', '.join(kinds)}.")
        return Guarantee(value)
    if name in _PATHS:
        if not isinstance(value, (str, Path)) or not str(value).strip() or "\0" in str(value):
            raise ConfigError(f"{name}: expected a path.")
        return Path(value)
    if name in _LISTS:
        return _list(name, value)
    if name == "log_level" and isinstance(value, str):
        return value.upper()
    if name in _SWITCHES and isinstance(value, str):  # the environment has only text
        return {"true": True, "false": False}.get(value.lower(), value)
    return value


def _list(name: str, value: object) -> tuple[str, ...]:
    """Convert a list of names, or a text with commas, as in the environment."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) and item for item in items):
        raise ConfigError(f"{name}: expected a list of names.")
    return tuple(items)


def _text(name: str, value: object) -> str:
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{name}: expected text, a number or a boolean, got {type(value).__name__}.")
    return value if isinstance(value, str) else str(value).lower()


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if value is None and name in ("lanes", "shards", "epoch_interval", "max_epoch_bytes", "worker_epoch_records"):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: expected a whole number.")
    if not low <= value <= high:
        unit = " ms" if name in _DURATIONS else ""
        raise ConfigError(f"{name}: expected a value between {low} and {high}{unit}.")
