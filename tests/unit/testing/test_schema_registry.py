"""Topologies with a schema registry: which subjects they use, and which failures are a record's and which the registry's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Avro, JsonSchema, Protobuf, StreamsBuilder, Topology, dead_letter, log_and_continue, tumbling
from penstock.errors import ProcessingError, RegistryError, SerializationError
from penstock.handlers import Failure
from penstock.serdes.registry import Schema, SchemaKind
from penstock.testing import TopologyTestDriver
from tests.unit.serdes.registry.messages import Money


@dataclass
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Customer:
    name: str


def copying(to: Any = "out", **source: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=Avro(Order), **source).to(to, value=Avro(Order))
    return builder.build()


def totals() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=Avro(Customer), value=Avro(Order))
    by_customer = orders.group_by(lambda _, order: Customer(order.customer), key=Avro(Customer))
    by_customer.reduce(lambda one, other: Order(one.customer, one.amount + other.amount), store="totals").to_stream().to("out")
    return builder.build()


class Down:
    """A registry that does not answer."""

    def __call__(self, *arguments: Any) -> Any:
        raise RegistryError("no answer")


class TestSubjects:
    def test_topics_and_changelogs_have_subjects_but_exchanges_do_not(self) -> None:
        with TopologyTestDriver(totals()) as driver:
            driver.input("orders").pipe(Order("a", 1), key=Customer("x"))
            driver.input("orders").pipe(Order("a", 2), key=Customer("y"))
            assert driver.output("out").table() == {Customer("a"): Order("a", 3)}
            assert driver.store("totals")[Customer("a")] == Order("a", 3)
            assert set(driver.schema_registry.subjects) == {
                "orders-key",
                "orders-value",
                "topology-test-driver-totals-changelog-value",
                "out-key",
                "out-value",
            }

    def test_a_topic_that_a_function_chooses_has_its_own(self) -> None:
        with TopologyTestDriver(copying(lambda key, order, context: f"of-{order.customer}")) as driver:
            for customer in ("a", "b", "a"):
                driver.input("orders").pipe(Order(customer, 1), key="k")
            assert set(driver.schema_registry.subjects) == {"orders-value", "of-a-value", "of-b-value"}
            assert len(driver.output("of-a").values()) == 2

    def test_a_windowed_key_has_that_of_its_sink(self) -> None:
        builder = StreamsBuilder()
        orders = builder.stream("orders", key=Avro(Customer), value=Avro(Order)).group_by_key()
        orders.windowed_by(tumbling("1s")).count(store="counts").to_stream().to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("orders").pipe(Order("a", 1), key=Customer("x"), timestamp=5)
            assert [key.key for key, _ in driver.output("out").pairs()] == [Customer("x")]
            assert "out-key" in driver.schema_registry.subjects

    def test_a_schema_may_be_there_before(self) -> None:
        builder = StreamsBuilder()
        builder.stream("orders", key=str, value=Avro()).to("out", value=Avro(use_latest=True))
        with TopologyTestDriver(builder.build()) as driver:
            text = '{"type":"record","name":"Order","fields":[{"name":"amount","type":"int"}]}'
            driver.schema_registry.register("out-value", Schema(SchemaKind.AVRO, text))
            driver.input("orders", value=Avro(Order)).pipe(Order("a", 1), key="k")
            assert driver.output("out", value=Avro()).values() == [{"amount": 1}]

    @pytest.mark.parametrize(
        ("serde", "value"), [(Avro(Order), Order("a", 1)), (JsonSchema(Order), Order("a", 1)), (Protobuf(Money), Money(cents=1))]
    )
    def test_a_table_joins_a_stream_in_every_format(self, serde: Any, value: Any) -> None:
        builder = StreamsBuilder()
        table = builder.table("table", key=str, value=serde)
        builder.stream("in", key=str, value=serde).join(table, lambda left, right: [left == right]).to("out", value=list)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("table").pipe(value, key="k")
            driver.input("in").pipe(value, key="k")
            assert driver.output("out").values() == [[True]]


class TestRefusals:
    def test_a_record_in_another_format_becomes_a_dead_letter_with_its_bytes(self) -> None:
        with TopologyTestDriver(copying(), deserialization_errors=dead_letter("dead")) as driver:
            driver.input("orders", value=bytes).pipe(b'{"customer":"a"}', key="k")
            driver.input("orders", value=bytes).pipe(b"\0\0\0\0\x63abc", key="k")
            letters = driver.output("dead").records()
            assert [letter.value for letter in letters] == [b'{"customer":"a"}', b"\0\0\0\0\x63abc"]
            said = [dict(letter.headers)["__streams.errors.message"] or b"" for letter in letters]
            assert b"begin with 7b, not 00" in said[0]
            assert b"has no schema with id 99: unknown schema" in said[1]

    def test_the_handler_of_production_errors_decides_about_what_cannot_be_written(self) -> None:
        builder = StreamsBuilder()
        serde = Avro(Order, register=False)
        builder.stream("orders", key=str, value=Avro(Order)).to("out", value=serde)
        seen: list[Exception] = []

        def handler(failure: Failure) -> Any:
            seen.append(failure.error)
            return log_and_continue()

        with TopologyTestDriver(builder.build(), production_errors=handler) as driver:
            driver.input("orders").pipe(Order("a", 1), key="k")
            assert driver.output("out").is_empty
        assert [type(error) for error in seen] == [SerializationError]
        assert "does not have the schema in subject 'out-value'" in str(seen[0])

    def test_by_default_the_application_ends(self) -> None:
        with (
            TopologyTestDriver(copying()) as driver,
            pytest.raises(ProcessingError, match="cannot read the record from orders-0"),
        ):
            driver.input("orders", value=bytes).pipe(b"{}", key="k")


class TestNoAnswer:
    """No handler may drop a record because the registry is away."""

    def driver(self, topology: Topology) -> TopologyTestDriver:
        def handler(failure: Failure) -> Any:
            raise AssertionError(f"called about {failure.error!r}")

        return TopologyTestDriver(topology, deserialization_errors=handler, processing_errors=handler, production_errors=handler)

    def test_of_a_source(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.driver(copying()) as driver:
            topic = driver.input("orders")
            monkeypatch.setattr(driver.schema_registry, "by_id", Down())
            with pytest.raises(RegistryError, match="no answer"):
                topic.pipe(Order("a", 1), key="k")

    @pytest.mark.parametrize("to", ["out", lambda key, value, context: "out"])
    def test_of_a_sink(self, monkeypatch: pytest.MonkeyPatch, to: Any) -> None:
        with self.driver(copying(to)) as driver:
            topic = driver.input("orders")
            topic.pipe(None, key="k")
            monkeypatch.setattr(driver.schema_registry, "register", known_topics_only(driver.schema_registry.register))
            with pytest.raises(RegistryError, match="no answer for out-value"):
                topic.pipe(Order("a", 1), key="k")

    def test_of_a_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.driver(totals()) as driver:
            topic = driver.input("orders")
            monkeypatch.setattr(driver.schema_registry, "register", known_topics_only(driver.schema_registry.register))
            with pytest.raises(RegistryError, match="no answer for topology-test-driver-totals-changelog-value"):
                topic.pipe(Order("a", 1), key=Customer("x"))


def known_topics_only(register: Callable[[str, Schema], int]) -> Callable[[str, Schema], int]:
    """Let the input topic's schemas pass."""

    def registered(subject: str, schema: Schema) -> int:
        if not subject.startswith("orders-"):
            raise RegistryError(f"no answer for {subject}")
        return register(subject, schema)

    return registered
