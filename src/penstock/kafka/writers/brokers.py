"""`Brokers`: aiokafka's connections to a cluster, used by one thread at a time without a running event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import BrokerNotAvailableError
from aiokafka.errors import KafkaError as AioError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError

from penstock.errors import BrokerError, ConfigError, PenstockError, TopicError
from penstock.kafka.failures import failure
from penstock.kafka.writers.requests import features, levels_of

T = TypeVar("T")

GROUP: Any = CoordinationType.GROUP
TRANSACTION: Any = CoordinationType.TRANSACTION

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_REQUEST_TIMEOUT_MS = 10_000
_LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FILES = {"ssl.ca.location": "cafile", "ssl.certificate.location": "certfile", "ssl.key.location": "keyfile"}

PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
    }
)
"""Errors of a coordinator after which the same request may succeed."""


class NoAnswerError(Exception):
    """No answer: whether the request was carried out is not known."""


class Attempts:
    """The attempts of one request: for `patience_s`, with pauses that double, so that a broker that starts is not flooded."""

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._end = clock() + patience_s
        self._clock = clock
        self._pause_s = _FIRST_PAUSE_S

    @property
    def are_over(self) -> bool:
        """Return whether the time is up."""
        return self._clock() >= self._end

    async def pause(self) -> None:
        """Wait until the next attempt: longer each time."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def pause_shortly(self) -> None:
        """Wait until the next attempt, for a broker that answers but is busy for some milliseconds."""
        await asyncio.sleep(_FIRST_PAUSE_S)


class Brokers:
    """Connections to the brokers of `settings`. A request that fails for a passing reason is repeated for `patience_s`."""

    def __init__(self, settings: Mapping[str, Any], patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        _silence_the_client()
        self._arguments = client_arguments(settings)
        self.patience_s: float = patience_s
        self.clock: Callable[[], float] = clock
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._client: AIOKafkaClient | None = None
        self._coordinators: dict[tuple[CoordinationType, str], int] = {}
        self._topics: set[str] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        with self._lock:
            return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._client is not None:
                self._loop.run_until_complete(self._client.close())
                self._client = None
            self._loop.close()

    def attempts(self) -> Attempts:
        """Return the attempts of a request that begins now."""
        return Attempts(self.patience_s, self.clock)

    async def connected(self) -> AIOKafkaClient:
        """Return the client; connects if it has to."""
        if self._client is None:
            client = AIOKafkaClient(**self._arguments)
            try:
                await client.bootstrap()
                if not client.cluster.brokers():  # one that just starts answers before it takes part
                    raise BrokerNotAvailableError("no broker takes part in the cluster yet")
            except AioError as error:
                await client.close()
                raise NoAnswerError(str(error)) from error
            self._client = client
        return self._client

    async def knowing(self, topics: Collection[str]) -> AIOKafkaClient:
        """Return the client with the metadata of these topics."""
        client = await self.connected()
        self._topics.update(topics)
        await client.set_topics(self._topics)
        return client

    async def levels(self) -> dict[str, int]:
        """Return the level of each feature that the cluster uses; raises if no broker answers in time."""
        attempts = self.attempts()
        while True:
            try:
                client = await self.connected()
                return levels_of(await self.send(client.get_random_node(), features()))
            except NoAnswerError as error:
                if attempts.are_over:
                    raise BrokerError(f"No broker tells its features: {error}.") from error
            await attempts.pause()

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return how many partitions each topic has; a topic that does not exist is created if brokers do that by themselves."""
        client = await self.knowing(topics)
        attempts = self.attempts()
        while True:
            found = {topic: len(client.cluster.partitions_for_topic(topic) or ()) for topic in topics}
            missing = [topic for topic, count in found.items() if not count]
            if not missing:
                return found
            if attempts.are_over:
                raise TopicError(f"Topic {missing[0]!r} does not exist. Create it.")
            await attempts.pause()
            await client.force_metadata_update()

    async def ask(self, kind: CoordinationType, key: str, request: Any, code_of: Callable[[Any], int], what: str) -> Any:
        """Send a request to a coordinator, until it answers something that does not pass; return the answer.

        `code_of` returns the error code of an answer. Raises `NoAnswerError` if there is no answer in time.
        """
        attempts = self.attempts()
        while True:
            try:
                answer = await self.send(await self._coordinator(kind, key), request, ConnectionGroup.COORDINATION)
                code = code_of(answer)
                if code not in PASSING:
                    return answer
                why = KafkaError(code).str()
            except NoAnswerError as error:
                code, why = KafkaError.NETWORK_EXCEPTION, str(error)
            is_busy = code == KafkaError.CONCURRENT_TRANSACTIONS
            if not is_busy:
                self._coordinators.pop((kind, key), None)
            if attempts.are_over:
                raise NoAnswerError(f"{what}: {why}")
            await (attempts.pause_shortly() if is_busy else attempts.pause())

    async def send(self, node: Any, request: Any, group: ConnectionGroup = ConnectionGroup.DEFAULT) -> Any:
        """Send a request to a broker; raises `NoAnswerError` if there is no answer."""
        client = await self.connected()
        try:
            return await client.send(node, request, group=group)
        except NotImplementedError as error:
            raise ConfigError(
                f"writers: the brokers are too old for several writers in one transaction ({error}). Set writers to driver."
            ) from error
        except (AioError, OSError, asyncio.TimeoutError) as error:
            raise NoAnswerError(f"{type(error).__name__} {error}") from error

    async def _coordinator(self, kind: CoordinationType, key: str) -> int:
        if (kind, key) not in self._coordinators:
            client = await self.connected()
            try:
                self._coordinators[kind, key] = await client.coordinator_lookup(kind, key)
            except (AioError, OSError, asyncio.TimeoutError) as error:
                raise NoAnswerError(f"{type(error).__name__} {error}") from error
        return self._coordinators[kind, key]


def first_error(answer: Any) -> int:
    """Return the error code of an answer about partitions: the one that decides, 0 if there is none."""
    codes = {code for _, entries in answer.errors for _, code in entries} - {KafkaError.NO_ERROR}
    lasting = codes - {KafkaError.OPERATION_NOT_ATTEMPTED, KafkaError.CONCURRENT_TRANSACTIONS}
    return min(lasting or codes, default=0)


def refused(code: int, what: str) -> PenstockError:
    """Return our error for an error code of the protocol; `what` says what failed."""
    return failure(KafkaError(code), what)


def _silence_the_client() -> None:
    """Let aiokafka log nothing, unless the user has set its level: it logs every attempt, and we report what fails in the end."""
    logger = logging.getLogger("aiokafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def client_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of aiokafka's client for settings of librdkafka; raises if it cannot log in with them."""
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    arguments: dict[str, Any] = {
        "bootstrap_servers": str(settings["bootstrap.servers"]),
        "client_id": str(settings.get("client.id", "penstock")),
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        "security_protocol": protocol,
    }
    if protocol.startswith("SASL"):
        mechanism = str(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")))
        if mechanism not in _LOGINS:
            raise _cannot(f"log in with {mechanism or 'no mechanism'}")
        arguments |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": str(settings.get("sasl.username", "")),
            "sasl_plain_password": str(settings.get("sasl.password", "")),
        }
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = _ssl_context(settings)
    return arguments


def _ssl_context(settings: Mapping[str, Any]) -> Any:
    given = [name for name in settings if name.startswith(("ssl.", "enable.ssl."))]
    others = set(given) - {*_FILES, "ssl.ca.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm"}
    if others:
        raise _cannot(f"use {', '.join(sorted(others))}")
    arguments = {argument: str(settings[name]) for name, argument in _FILES.items() if name in settings}
    context = create_ssl_context(**arguments, cadata=settings.get("ssl.ca.pem"), password=settings.get("ssl.key.password"))
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
    return context


def _cannot(what: str) -> ConfigError:
    return ConfigError(f"writers: executors cannot {what} when they write. Set writers to driver.")
