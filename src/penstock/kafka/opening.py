"""What opens the clients of Kafka: librdkafka, unless a simulation has put its own clients in their place."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka.admin import AdminClient

logger: logging.Logger = logging.getLogger("penstock.kafka")
"""Receives the clients' own log."""


class Clients(Protocol):
    """Opens clients with librdkafka's settings; they have the methods of `confluent_kafka` that this room calls."""

    def consumer(self, settings: Mapping[str, Any]) -> confluent_kafka.Consumer:
        """Return a consumer."""

    def producer(self, settings: Mapping[str, Any]) -> confluent_kafka.Producer:
        """Return a producer."""

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        """Return an admin client."""


class Librdkafka:
    """Clients of a real cluster."""

    def consumer(self, settings: Mapping[str, Any]) -> confluent_kafka.Consumer:
        """See `Clients.consumer`."""
        return confluent_kafka.Consumer(dict(settings), logger=logger)

    def producer(self, settings: Mapping[str, Any]) -> confluent_kafka.Producer:
        """See `Clients.producer`."""
        return confluent_kafka.Producer(dict(settings), logger=logger)

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        """See `Clients.admin`."""
        return AdminClient(dict(settings), logger=logger)


class _Current:
    """What this process opens."""

    clients: Clients = Librdkafka()


@contextmanager
def replaced(by: Clients) -> Iterator[None]:
    """Open other clients in this block; one at a time."""
    before, _Current.clients = _Current.clients, by
    try:
        yield
    finally:
        _Current.clients = before


def clients() -> Clients:
    """Return what opens clients now."""
    return _Current.clients
