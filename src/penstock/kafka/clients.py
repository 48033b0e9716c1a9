"""Each client's settings, from `Config`: librdkafka's producer, consumer and admin, and the Java client of Spark's source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.config import Config, Guarantee
from penstock.errors import ConfigError
from penstock.kafka.failures import configured_wrongly, failure, translated
from penstock.kafka.statistics import OnStatistics, with_statistics
from penstock.settings import CLIENTS, OAUTH_ENDPOINTS, Settings, revealed

logger: logging.Logger = logging.getLogger("penstock.kafka")
"""Receives the clients' own log."""

LARGEST_BATCH = 1_000_000
DEFAULT_MESSAGE_BYTES = 1_000_000
"""librdkafka's defaults: the largest batch and the largest record."""
LARGEST_MESSAGE_BYTES = 1_000_000_000
"""The most that librdkafka accepts as `message.max.bytes`."""

_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # a key gets the same partition as from Java's producer
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "131072",  # the driver's memory already holds an epoch's rows
    "delivery.report.only.error": True,
}
_CONSUMER = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",  # a position that no longer exists must raise
    "enable.partition.eof": "true",  # the only sign that nothing but control records is left
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "100",
    "queued.max.messages.kbytes": "131072",
    "receive.message.max.bytes": "1000000000",  # also limits what a compressed batch may expand to; zstd fails far below it
}
_INPUT_CONSUMER = {  # keeps its queue filled
    **_CONSUMER,
    "fetch.queue.backoff.ms": "10",  # with the default of a second, a full queue stays empty for that long
    "queued.min.messages": "100000",  # a record in the queue takes much more memory than its bytes
    "fetch.min.bytes": "65536",
    "fetch.wait.max.ms": "10",  # with both: at most a hundred requests a second, or each record of a slow topic would be one
    "queued.max.messages.kbytes": "32768",
    "max.partition.fetch.bytes": str(2 << 20),
}
_PROBE_S = 2.0
_TOKENS = "oauth_cb"
_ASKS_BY_ITSELF = (2, 13)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAAS = "main.consumer.sasl.jaas.config"
_OTHER_LOGIN_MODULES = (
    "com.sun.security.auth.module.Krb5LoginModule",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
)
"""Modules that a user may configure; others (the JNDI one, for example) can be made to load and run remote code."""
_JAVA_NAMES = {
    "bootstrap.servers": "bootstrap.servers",
    "client.rack": "client.rack",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
}
_PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}


def producer_settings(config: Config, limits: Collection[int] = ()) -> dict[str, Any]:
    """Settings of the producer; `limits` are the `max.message.bytes` of the topics that it writes to.

    librdkafka does not split a batch that is too large for its topic, so no batch may exceed the smallest limit.
    """
    sizes = {
        "message.max.bytes": str(min(max(limits, default=DEFAULT_MESSAGE_BYTES), LARGEST_MESSAGE_BYTES)),
        "batch.size": str(min([LARGEST_BATCH, *limits])),
    }
    return {**_PRODUCER, **sizes, **_shared(config), **_only_for("producer.", config)}


def largest_record(config: Config, limits: Collection[int] = ()) -> int:
    """The size of the largest record that a producer with these settings sends."""
    return int(producer_settings(config, limits)["message.max.bytes"])


def consumer_settings(config: Config, group_id: str) -> dict[str, Any]:
    """Settings of a consumer that reads changelogs, or a group's committed offsets."""
    return {**_CONSUMER, **_shared(config), **_only_for("restore.consumer.", config), "group.id": group_id}


def input_settings(config: Config, group_id: str) -> dict[str, Any]:
    """Settings of the consumer that reads the source topics for worker processes."""
    isolation = {} if config.guarantee is Guarantee.EXACTLY_ONCE else {"isolation.level": "read_uncommitted"}
    return {**_INPUT_CONSUMER, **isolation, **_shared(config), "group.id": group_id}


def spark_can_log_in(config: Config) -> bool:
    """Whether Spark's Kafka source, a Java client, can log in: not if a Python function provides the tokens."""
    return config.tokens is None or _JAAS in config.kafka


def spark_options(config: Config) -> Settings:
    """Options of Spark's Kafka source: the Java client's connection, login and isolation level."""
    java = {_JAVA_NAMES[name]: value for name, value in config.kafka.items() if name in _JAVA_NAMES}
    java |= _java_security(config.kafka) | _only_for("main.consumer.", config)
    if config.guarantee is Guarantee.EXACTLY_ONCE:
        java["isolation.level"] = "read_committed"
    if "sasl.jaas.config" in java:
        _check_login_module(java["sasl.jaas.config"])
    return Settings({f"kafka.{name}": value for name, value in revealed(java).items()})


def oauth_endpoints(config: Config) -> list[str]:
    """The URLs that the Java client may send its credentials to."""
    names = [f"{prefix}{name}" for prefix in ("", "main.consumer.") for name in OAUTH_ENDPOINTS]
    return sorted({config.kafka[name] for name in names if name in config.kafka})


def for_client(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a client takes them, with secrets as plain text. Do not keep the result.

    Waits until a token provider has provided: a client that is being created waits too, but would not say why.
    """
    tokens = settings.get(_TOKENS)
    if tokens is not None:
        _refuse_old_client(version("confluent-kafka"))
        tokens.ensure()
    return revealed(settings)


def _refuse_old_client(found: str) -> None:
    """Raise if the client asks for tokens only when it is polled: requests before that would wait in vain."""
    if tuple(map(int, found.split(".")[:2])) < _ASKS_BY_ITSELF:
        raise ConfigError(f"token_provider: needs confluent-kafka {'.'.join(map(str, _ASKS_BY_ITSELF))} or later, not {found}.")


def open_consumer(settings: Mapping[str, Any], on_statistics: OnStatistics | None = None) -> Consumer:
    """Create a consumer with these settings; `on_statistics` receives its statistics."""
    try:
        return Consumer(with_statistics(for_client(settings), on_statistics), logger=logger)
    except KafkaException as error:
        raise configured_wrongly(error) from None


def open_admin(config: Config, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """Create an admin client; `on_error` receives connection errors."""
    settings = {**_shared(config)} if on_error is None else {**_shared(config), "error_cb": on_error}
    try:
        return AdminClient(for_client(settings), logger=logger)
    except KafkaException as error:
        raise configured_wrongly(error) from None


def reach_brokers(config: Config) -> AdminClient:
    """Create an admin client and wait until a broker answers. Raise a refused login at once: a retry would not help."""
    heard: dict[int, KafkaError] = {}

    def on_error(error: KafkaError) -> None:
        heard[error.code()] = error

    admin = open_admin(config, on_error)
    deadline = time.monotonic() + config.broker_timeout_ms / 1_000
    while True:
        try:
            admin.list_topics(timeout=_PROBE_S)
        except KafkaException as error:
            admin.poll(0)
            what = f"Cannot connect to a broker at {config.kafka['bootstrap.servers']}"
            if KafkaError._AUTHENTICATION in heard:
                raise failure(heard[KafkaError._AUTHENTICATION], what) from None
            if time.monotonic() > deadline:
                said = heard.get(KafkaError._SSL)  # may be temporary, while a broker starts or stops
                raise translated(error, what) if said is None else failure(said, what) from error
        else:
            return admin


def _shared(config: Config) -> dict[str, Any]:
    tokens = {} if config.tokens is None else {_TOKENS: config.tokens}
    return {**{name: value for name, value in config.kafka.items() if not name.startswith(CLIENTS)}, **tokens}


def _only_for(client: str, config: Config) -> dict[str, str]:
    return {name.removeprefix(client): value for name, value in config.kafka.items() if name.startswith(client)}


def _java_security(kafka: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "security.protocol" in kafka:
        java["security.protocol"] = kafka["security.protocol"].upper()
    if "ssl.keystore.location" in kafka:
        java["ssl.keystore.type"] = "PKCS12"
    java |= {_PEM_FILES[name]: _pem(name, path) for name, path in kafka.items() if name in _PEM_FILES}
    if java.keys() & {"ssl.keystore.key"} or "ssl.key.pem" in kafka:
        java["ssl.keystore.type"] = "PEM"
    if java.keys() & {"ssl.truststore.certificates"} or "ssl.ca.pem" in kafka:
        java["ssl.truststore.type"] = "PEM"
    return java | _java_login(kafka)


def _java_login(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    if _JAAS in kafka:
        return {"sasl.mechanism": mechanism}
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise ConfigError(f"kafka: sasl.mechanism {mechanism!r} needs {_JAAS}, for Spark's Kafka reader.")
    if not {"sasl.username", "sasl.password"} <= kafka.keys():
        raise ConfigError(f"kafka: sasl.mechanism {mechanism!r} needs sasl.username and sasl.password.")
    who = f"username={_quoted(kafka['sasl.username'])} password={_quoted(kafka['sasl.password'])}"
    return {"sasl.mechanism": mechanism.upper(), "sasl.jaas.config": f"{module} required {who};"}


def _check_login_module(jaas: str) -> None:
    known = {*_LOGIN_MODULES.values(), *_OTHER_LOGIN_MODULES}
    module = next(iter(jaas.split(maxsplit=1)), "")
    if module not in known:
        raise ConfigError(f"kafka: {_JAAS!r} must begin with one of {', '.join(sorted(known))}.")


def _quoted(text: str) -> str:
    """Quote a string for JAAS, escaping what would end it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _pem(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kafka: {name}: cannot read {path!r} as PEM: {type(error).__name__}") from None
