"""An application with Avro on a real broker and a real registry: results, dead letters, and a registry that does not answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock import App, Avro, StreamsBuilder, dead_letter
from penstock.errors import RegistryError
from penstock.serdes.registry.registry import Registry, RemoteSource
from penstock.serdes.registry.serde import connected
from penstock.serdes.registry.settings import RegistrySettings
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.topics import Sent
from verification.registry.apicurio import Apicurio

TIMEOUT_S = 120
BROKER_TIMEOUT = "40s"
"""Shorter, so that an application which waits for a broker ends first, and says for what."""
UNKNOWN = b"\x00\x7f\x00\x00\x01not an order"
"""A value with an id that the registry does not know."""


@dataclass
class Order:
    """An order."""

    customer: str
    amount: int


@dataclass
class Total:
    """The orders of a customer."""

    orders: int = 0
    amount: int = 0


class ApplicationCases:
    """One application, started several times."""

    def __init__(self, broker: Broker, server: Apicurio) -> None:
        self._servers = broker.bootstrap_servers
        self._server = server
        self._directory = Path(tempfile.mkdtemp(prefix="registry-application-"))
        registry = Registry(RemoteSource(RegistrySettings.of({"url": server.url})))
        self._orders = connected(Avro(Order, namespace="shop"), registry).for_topic("shop-orders", is_key=False)
        self._totals = connected(Avro(Total, namespace="shop"), registry).for_topic("shop-totals", is_key=False)

    def all(self) -> dict[str, Callable[[], None]]:
        """The cases, in their order: each continues where the one before has ended."""
        return {
            "an_application_counts_avro_orders": self.counts,
            "a_value_of_an_unknown_schema_is_a_dead_letter_with_its_bytes": self.keeps_unknown_values,
            "a_registry_that_does_not_answer_loses_nothing": self.waits_for_the_registry,
        }

    def counts(self) -> None:
        """Values are read and written with their schemas; those of the store, too."""
        self._send(("ann", 5), ("bob", 7), ("ann", 6))
        self._run()
        assert self._found() == {b"ann": Total(2, 11), b"bob": Total(1, 7)}, self._found()
        logged = topics.read(self._servers, "shop-totals-changelog")
        assert all(record.value is None or record.value[8:9] == b"\x00" for record in logged), "the store's values have no id"

    def keeps_unknown_values(self) -> None:
        """The handler decides, and the letter has the original bytes."""
        topics.produce(self._servers, "shop-orders", [Sent(key=b"cid", value=UNKNOWN)])
        self._send(("cid", 1))
        self._run()
        letters = topics.read(self._servers, "shop-letters")
        assert [letter.value for letter in letters] == [UNKNOWN], letters
        assert self._found()[b"cid"] == Total(1, 1), self._found()

    def waits_for_the_registry(self) -> None:
        """The application ends without dropping anything, and continues when the registry is back."""
        self._send(("ann", 1))
        with self._silence():
            try:
                self._run(**{"retry.timeout.ms": "2000", "request.timeout.ms": "1000"})
            except RegistryError:
                pass
            else:
                raise AssertionError("the application has ended well without a registry")
        assert self._found()[b"ann"] == Total(2, 11), self._found()
        self._run()
        assert self._found()[b"ann"] == Total(3, 12), self._found()
        assert len(topics.read(self._servers, "shop-letters")) == 1

    @contextmanager
    def _silence(self) -> Iterator[None]:
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()

    def _send(self, *orders: tuple[str, int]) -> None:
        if not topics.names(self._servers) & {"shop-orders"}:
            topics.create(self._servers, "shop-orders", 2)
        sent = [Sent(key=customer.encode(), value=self._orders.serialize(Order(customer, amount))) for customer, amount in orders]
        topics.produce(self._servers, "shop-orders", sent)

    def _run(self, **registry: str) -> None:
        builder = StreamsBuilder()
        orders = builder.stream("shop-orders", key=str, value=Avro(Order, namespace="shop"))
        totals = orders.group_by_key().aggregate(Total, _added, store="totals", value=Avro(Total, namespace="shop"))
        totals.to_stream().to("shop-totals")
        app = App("shop", builder.build(), deserialization_errors=dead_letter("shop-letters"))
        settings = {"url": self._server.url, **registry}
        running = app.start(
            until="latest",
            engine="local",
            lanes=2,
            create_topics=True,
            bootstrap_servers=self._servers,
            broker_timeout=BROKER_TIMEOUT,
            state_dir=self._directory,
            admin_address="off",
            schema_registry=settings,
        )
        with running:
            assert running.wait(TIMEOUT_S), "the application has not ended"

    def _found(self) -> dict[bytes | None, Total]:
        read = topics.read(self._servers, "shop-totals")
        return {record.key: self._totals.deserialize(record.value) for record in read if record.value is not None}


def _added(customer: str, order: Order, total: Total) -> Total:
    return Total(total.orders + 1, total.amount + order.amount)
