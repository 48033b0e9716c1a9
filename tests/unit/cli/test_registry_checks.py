"""`penstock doctor` and the schema registry: what it finds, without changing anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import App, Avro, Protobuf, StreamsBuilder
from penstock.cli.findings import Finding, Level
from penstock.cli.registry_checks import examine_registry
from penstock.config import Config
from penstock.serdes.registry.schemas import Schema, SchemaKind
from tests.unit.serdes.registry.messages import Order as OrderMessage
from tests.unit.serdes.registry.stub import Stub


@dataclass
class Order:
    amount: int


ORDER = Avro(Order)
OLD = Schema(SchemaKind.AVRO, '{"type":"record","name":"Order","fields":[]}')
WITHOUT = Config.load(environment={}, bootstrap_servers="b:1")
REACHED = ("schema registry", Level.OK)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as running:
        yield running


def writing(value: Any, to: Any = "out") -> App:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(lambda text: Order(len(text))).to(to, value=value)
    return App("app", builder.build())


def found(stub: Stub, app: App | None, **registry: Any) -> list[Finding]:
    before = stub.schemas.subjects
    settings = {"url": stub.url, "retry.timeout.ms": 200, **{name.replace("__", "."): value for name, value in registry.items()}}
    findings = list(examine_registry(app, Config.load(environment={}, bootstrap_servers="b:1", schema_registry=settings)))
    assert stub.schemas.subjects == before, "a check registers nothing"
    return findings


def levels(findings: list[Finding]) -> list[tuple[str, Level]]:
    return [(finding.what, finding.level) for finding in findings]


class TestReach:
    def test_an_application_that_needs_none_is_not_checked(self, stub: Stub) -> None:
        assert found(stub, writing(str)) == []
        assert not stub.requests

    def test_without_an_application_the_one_in_the_settings_is_reached(self, stub: Stub) -> None:
        assert levels(found(stub, None)) == [REACHED]
        assert list(examine_registry(None, WITHOUT)) == []

    def test_serdes_without_a_registry_fail_and_are_named(self) -> None:
        [finding] = examine_registry(writing(ORDER), WITHOUT)
        assert (finding.what, finding.level) == ("schema registry", Level.FAIL)
        assert '"url" is missing, but KSTREAM-SINK' in finding.found

    def test_an_application_that_only_reads_needs_an_answer(self, stub: Stub) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=ORDER).map_values(lambda order: order.amount).to("out", value=int)
        assert levels(found(stub, App("app", builder.build()))) == [REACHED]

    def test_denied_access_fails(self, stub: Stub) -> None:
        stub.denying = True
        [finding] = found(stub, writing(ORDER), basic__auth__user__info="me:c4n4ry")
        assert (finding.what, finding.level) == ("schema registry", Level.FAIL)
        assert "denies GET /schemas/types (status 401" in finding.found
        assert "c4n4ry" not in finding.found

    def test_a_registry_that_does_not_answer_fails_soon(self, stub: Stub) -> None:
        stub.failing = 1_000
        [finding] = found(stub, None)
        assert "has not answered GET /schemas/types for 0.2 s" in finding.found


class TestSubjects:
    def test_one_that_is_new_is_registered_by_a_start(self, stub: Stub) -> None:
        _, subjects = found(stub, writing(ORDER))
        assert (subjects.what, subjects.level) == ("subjects", Level.OK)
        assert subjects.found.startswith("a start registers out-value ")

    def test_one_that_has_the_schema_is_ok(self, stub: Stub) -> None:
        assert ORDER.schema is not None
        stub.schemas.register("out-value", ORDER.schema)
        assert found(stub, writing(ORDER))[1].found == "1 have what is written"
        assert levels(found(stub, writing(ORDER), auto__register__schemas="false")) == [REACHED, ("subjects", Level.OK)]

    @pytest.mark.parametrize(("incompatible", "level"), [(False, Level.OK), (True, Level.FAIL)])
    def test_another_version_must_be_compatible(self, stub: Stub, incompatible: bool, level: Level) -> None:
        stub.schemas.register("out-value", OLD)
        stub.incompatible = incompatible
        assert levels(found(stub, writing(ORDER))) == [REACHED, ("subjects", level)]

    def test_a_registry_that_accepts_nothing_fails(self, stub: Stub) -> None:
        stub.mode = "READONLY"
        assert "its mode is READONLY" in found(stub, writing(ORDER))[1].found

    @pytest.mark.parametrize(
        ("value", "settings"),
        [(Avro(Order, register=False), {}), (ORDER, {"auto__register__schemas": "false"}), (Avro(Order, use_latest=True), {})],
    )
    def test_one_that_must_be_there_fails(self, stub: Stub, value: Any, settings: dict[str, str]) -> None:
        _, finding = found(stub, writing(value), **settings)
        assert finding.level is Level.FAIL
        assert "'out-value'" in finding.found

    def test_a_serde_without_a_schema_cannot_write(self, stub: Stub) -> None:
        assert "it has no schema" in found(stub, writing(Avro()))[1].found

    def test_stores_have_subjects_too(self, stub: Stub) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in", value=str).group_by_key()
        grouped.aggregate(lambda: Order(0), lambda _, text, order: order, store="orders", value=ORDER)
        _, subjects = found(stub, App("app", builder.build()))
        assert "app-orders-changelog-value" in subjects.found

    def test_imports_that_are_missing_are_registered_by_a_start(self, stub: Stub) -> None:
        _, subjects = found(stub, writing(Protobuf(OrderMessage)))
        assert (subjects.level, subjects.found.split(" (")[0]) == (Level.OK, "a start registers out-value")
        assert found(stub, writing(Protobuf(OrderMessage, register=False)))[1].level is Level.FAIL

    def test_a_topic_that_records_choose_has_a_subject_only_by_record(self, stub: Stub) -> None:
        assert levels(found(stub, writing(ORDER, to=lambda key, value, context: "out"))) == [REACHED]
        by_record = writing(Avro(Order, subject="record"), to=lambda key, value, context: "out")
        assert "a start registers Order " in found(stub, by_record)[1].found
