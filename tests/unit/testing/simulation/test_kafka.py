"""The simulated Kafka keeps the contract that `tests/jvm/kafka/test_contract.py` holds the real one to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import machine
from penstock.testing.simulation.client import Way
from penstock.testing.simulation.clients import SimulatedClients
from penstock.testing.simulation.kafka import SimulatedKafka
from tests.contracts.kafka import Contract, Side


class Moving(machine.ThisMachine):
    """A machine whose clocks move only while somebody waits."""

    def __init__(self, kafka: SimulatedKafka | None = None) -> None:
        self.now = 1_000_000.0
        self.kafka = kafka

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.kafka is not None:
            self.kafka.expire()


class TestSimulated(Contract):
    @pytest.fixture
    def side(self) -> Iterator[Side]:
        moving = Moving()
        with machine.replaced(moving):
            moving.kafka = kafka = SimulatedKafka()
            kafka.wait = moving.sleep  # type: ignore[assignment,method-assign]
            yield Side(SimulatedClients(Way(kafka)), {})
