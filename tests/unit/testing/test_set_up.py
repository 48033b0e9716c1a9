"""`setup=` of processors and transformers: a client per process, whatever becomes of processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import FixedKeyProcessor, Processor, Record, StreamsBuilder, Topology, ValueTransformer, retry, shared_store
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver

LOG: list[str] = []


@contextmanager
def opened() -> Iterator[str]:
    LOG.append("open")
    yield "client"
    LOG.append("close")


class Ask(Processor[str, str, str, str]):
    """Asks a client."""

    def __init__(self, client: str) -> None:
        self._client = client

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(f"{self._client} {record.value}"))


class AskFixed(FixedKeyProcessor[str, str, str]):
    """The same with its key."""

    def __init__(self, client: str) -> None:
        self._client = client

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(f"{self._client} {record.value}"))


class Transform(ValueTransformer[str, str, str]):
    """The same in a table."""

    def __init__(self, client: str) -> None:
        self._client = client

    def transform(self, key: str, value: str) -> str:
        return f"{self._client} {value}"


def topologies() -> Iterator[Topology]:
    for number in range(4):
        builder = StreamsBuilder(key=str, value=str)
        if number == 0:
            builder.stream("in").process(Ask, setup=opened, key=str, value=str).to("out")
        elif number == 1:
            builder.stream("in").process_values(AskFixed, setup=opened, value=str).to("out")
        elif number == 2:
            builder.table("in").transform_values(Transform, setup=opened, value=str).to_stream().to("out")
        else:
            builder.add_state_store(shared_store("held", value=int))
            builder.stream("in").process_atomically(Ask, setup=opened, stores=["held"], key=str, value=str).to("out")
        yield builder.build()


@pytest.mark.parametrize("handlers", [{}, {"processing_errors": retry(2)}])
@pytest.mark.parametrize(
    "topology", list(topologies()), ids=["process", "process_values", "transform_values", "process_atomically"]
)
def test_a_client_is_opened_once_and_closed_at_the_end(topology: Topology, handlers: dict[str, Any]) -> None:
    LOG.clear()
    with TopologyTestDriver(topology, **handlers) as driver:
        for value in "abcdefgh":
            driver.input("in").pipe(value, key="k")
        driver.rebind()
        driver.input("in").pipe("i", key="k")
        assert driver.output("out").values() == [f"client {value}" for value in "abcdefghi"]
        assert LOG == ["open"]
    assert LOG == ["open", "close"]


def asking(setup: Any, supplier: Any = Ask) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(supplier, setup=setup, key=str, value=str).to("out")
    return builder.build()


def test_a_client_may_be_any_object_and_be_replaced_in_a_test() -> None:
    with TopologyTestDriver(asking(opened), fakes={opened: lambda: "fake"}) as driver:
        driver.input("in").pipe("a")
        assert driver.output("out").values() == ["fake a"]


def test_a_setup_that_fails_is_named() -> None:
    def refused() -> Any:
        raise OSError("no route")

    with pytest.raises(ProcessingError, match=r"setup=.*refused failed: OSError: no route\n  the node was declared at"):
        TopologyTestDriver(asking(refused))


def test_what_does_not_fit_is_refused_where_it_is_declared() -> None:
    async def later() -> None: ...

    with pytest.raises(TopologyError, match=r"process's setup= must not be async def"):
        asking(later)
    with pytest.raises(TopologyError, match=r"process calls its function with \(client\)"):
        asking(opened, lambda: None)
    with pytest.raises(TopologyError, match=r"process's setup= calls its function with \(\)"):
        asking(lambda address: address)
