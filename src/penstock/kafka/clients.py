"""Each client's settings, from `Config`: librdkafka's producer, consumers and admin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock import machine
from penstock.config import Config, Guarantee
from penstock.errors import ConfigError
from penstock.kafka.failures import configured_wrongly, failure, translated
from penstock.kafka.opening import clients
from penstock.kafka.statistics import OnStatistics, with_statistics
from penstock.records import Partition
from penstock.settings import CLIENTS, revealed

T = TypeVar("T")

LARGEST_BATCH = 1_000_000
DEFAULT_MESSAGE_BYTES = 1_000_000
"""librdkafka's defaults: the largest batch and the largest record."""
LARGEST_MESSAGE_BYTES = 1_000_000_000
"""The most that librdkafka accepts as `message.max.bytes`."""

_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": "true",
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
    """Settings of the consumers that read the source topics."""
    isolation = {} if config.guarantee is Guarantee.EXACTLY_ONCE else {"isolation.level": "read_uncommitted"}
    return {**_INPUT_CONSUMER, **isolation, **_shared(config), **_only_for("main.consumer.", config), "group.id": group_id}


Read = Callable[[Mapping[str, str], Mapping[Partition, int], Mapping[Partition, int], int], T]
"""`read(settings, positions, ends, timeout_ms)`."""


def for_tasks(config: Config, group_id: str, read: Read[T]) -> Callable[[Mapping[Partition, int], Mapping[Partition, int]], T]:
    """Return the function by which tasks read from positions to ends: `read`, with its settings, secrets included."""
    settings = revealed(consumer_settings(config, group_id))  # tasks need them, but pickling would hide secrets
    timeout_ms = config.broker_timeout_ms
    return lambda positions, ends: read(settings, positions, ends, timeout_ms)


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
        return clients().consumer(with_statistics(for_client(settings), on_statistics))
    except KafkaException as error:
        raise configured_wrongly(error) from None


def open_admin(config: Config, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """Create an admin client; `on_error` receives connection errors."""
    settings = {**_shared(config)} if on_error is None else {**_shared(config), "error_cb": on_error}
    try:
        return clients().admin(for_client(settings))
    except KafkaException as error:
        raise configured_wrongly(error) from None


def reach_brokers(config: Config) -> AdminClient:
    """Create an admin client and wait until a broker answers. Raise a refused login at once: a retry would not help."""
    heard: dict[int, KafkaError] = {}

    def on_error(error: KafkaError) -> None:
        heard[error.code()] = error

    admin = open_admin(config, on_error)
    deadline = machine.monotonic() + config.broker_timeout_ms / 1_000
    while True:
        try:
            admin.list_topics(timeout=_PROBE_S)
        except KafkaException as error:
            admin.poll(0)
            what = f"Cannot connect to a broker at {config.kafka['bootstrap.servers']}"
            if KafkaError._AUTHENTICATION in heard:
                raise failure(heard[KafkaError._AUTHENTICATION], what) from None
            if machine.monotonic() > deadline:
                said = heard.get(KafkaError._SSL)  # may be temporary, while a broker starts or stops
                raise translated(error, what) if said is None else failure(said, what) from error
        else:
            return admin


def _shared(config: Config) -> dict[str, Any]:
    tokens = {} if config.tokens is None else {_TOKENS: config.tokens}
    return {**{name: value for name, value in config.kafka.items() if not name.startswith(CLIENTS)}, **tokens}


def _only_for(client: str, config: Config) -> dict[str, str]:
    return {name.removeprefix(client): value for name, value in config.kafka.items() if name.startswith(client)}
