"""`SimulatedClients`: opens clients of a simulated Kafka, which have librdkafka's ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.testing.simulation.admin import SimulatedAdmin
from penstock.testing.simulation.client import Way
from penstock.testing.simulation.consumer import SimulatedConsumer
from penstock.testing.simulation.producer import SimulatedProducer


class SimulatedClients:
    """Opens clients on a way to a simulated Kafka."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        """See `penstock.kafka.opening.Clients.consumer`."""
        return SimulatedConsumer(self._way, settings)

    def producer(self, settings: Mapping[str, Any]) -> Any:
        """See `penstock.kafka.opening.Clients.producer`."""
        return SimulatedProducer(self._way, settings)

    def admin(self, settings: Mapping[str, Any]) -> Any:
        """See `penstock.kafka.opening.Clients.admin`."""
        return SimulatedAdmin(self._way)
