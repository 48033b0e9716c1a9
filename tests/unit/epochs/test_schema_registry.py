"""Epochs of a program whose schemas are in a registry: shards of keys, state that outlives its schema, and an outage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock import Avro, StreamsBuilder, Topology, log_and_continue
from penstock.epochs.program import Program
from penstock.epochs.routes import canonical_keys
from penstock.errors import ConfigError, RegistryError
from penstock.handlers import ErrorHandlers
from penstock.serdes import Serde
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.serde import connected
from tests.unit.epochs.application import Application, Raw, program_of

NARROW = {"type": "record", "name": "Key", "fields": [{"name": "name", "type": "string"}]}
WIDE = {**NARROW, "fields": [*NARROW["fields"], {"name": "more", "type": "int"}]}
TOTAL = {"type": "record", "name": "Total", "fields": [{"name": "sum", "type": "long"}]}
LATER = {**TOTAL, "fields": [{"name": "currency", "type": "string", "default": "CHF"}, *TOTAL["fields"]]}


@dataclass(frozen=True)
class Key:
    name: str


class WithRegistry(Application):
    """An application whose serdes have a registry."""

    registry: Registry

    def program(self, lanes: int, incarnation: str) -> Program:
        return program_of(
            self.topology,
            lanes,
            directory=str(self.directory),
            engine=self.engine,
            incarnation=incarnation,
            handlers=self.handlers,
            registry=self.registry,
        )


def summing(total: Any = TOTAL) -> Topology:
    def add(key: Key, value: int, sum_: Any) -> Any:
        return {**sum_, "sum": sum_["sum"] + value, "currency": sum_.get("currency", "")}

    builder = StreamsBuilder()
    stream = builder.stream("in", key=Avro(Key, schema=NARROW), value=int)
    stream.group_by_key().aggregate(lambda: {"sum": 0}, add, store="totals", value=Avro(schema=total)).to_stream().to("out")
    return builder.build()


def key_of(registry: Registry, schema: Any, **fields: Any) -> bytes:
    serde: Serde[Any] = connected(Avro(schema=schema), registry).for_topic("in", is_key=True)
    return serde.serialize({"name": "a", **fields})


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def registry(source: MemorySource) -> Registry:
    return Registry(source)


def application(tmp_path: Path, registry: Registry, **options: Any) -> WithRegistry:
    made = WithRegistry(tmp_path, summing, **options)
    made.registry = registry
    return made


def test_a_key_has_one_shard_and_one_entry_whichever_schema_wrote_it(tmp_path: Path, registry: Registry) -> None:
    running = application(tmp_path, registry)
    running.start(2)
    narrow, wide = key_of(registry, NARROW), key_of(registry, WIDE, more=7)
    assert narrow != wide
    running.step([Raw(narrow, (1).to_bytes(8, "big"), 0), Raw(wide, (2).to_bytes(8, "big"), 0)])
    serde = connected(Avro(schema=TOTAL), registry).for_topic("app-totals-changelog", is_key=False)
    [kept] = running.topics.content("app-totals-changelog").values()
    assert serde.deserialize(kept[8:]) == {"sum": 3}


def test_state_outlives_its_schema(tmp_path: Path, registry: Registry) -> None:
    running = application(tmp_path, registry)
    running.start(2)
    running.step([Raw(key_of(registry, NARROW), (1).to_bytes(8, "big"), 0)])
    running.topology = summing(LATER)
    running.start(2)
    running.step([Raw(key_of(registry, NARROW), (2).to_bytes(8, "big"), 0)])
    serde = connected(Avro(schema=LATER), registry).for_topic("app-totals-changelog", is_key=False)
    [kept] = running.topics.content("app-totals-changelog").values()
    assert serde.deserialize(kept[8:]) == {"sum": 3, "currency": "CHF"}


def test_an_outage_ends_the_epoch_whatever_handlers_say(
    tmp_path: Path, registry: Registry, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_of(registry, NARROW)
    ignore = log_and_continue()
    handlers = ErrorHandlers(deserialization=ignore, processing=ignore, production=ignore)
    running = application(tmp_path, Registry(source), handlers=handlers)
    running.start(2)
    asked = source.by_id

    def down(schema_id: int) -> Any:
        raise RegistryError("no answer")

    monkeypatch.setattr(source, "by_id", down)
    with pytest.raises(RegistryError, match="no answer"):
        running.run([Raw(key, (1).to_bytes(8, "big"), 0)])
    monkeypatch.setattr(source, "by_id", asked)
    running.step([Raw(key, (1).to_bytes(8, "big"), 0)])
    assert len(running.topics.content("app-totals-changelog")) == 1


def test_an_outage_is_waited_out_only_once(tmp_path: Path, source: MemorySource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question may take a minute."""
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=Avro(schema=TOTAL)).group_by_key().count(store="counts").to_stream().to("out", value=int)
    running = WithRegistry(tmp_path, builder.build)
    running.registry = Registry(source)
    running.start(1)
    asked: list[int] = []

    def down(schema_id: int) -> Any:
        asked.append(schema_id)
        raise RegistryError("no answer")

    monkeypatch.setattr(source, "by_id", down)
    with pytest.raises(RegistryError, match="no answer"):
        running.run([Raw(b"%d" % number, b"\0\0\0\0\1\2", 0) for number in range(20)])
    assert asked == [1]


def test_routing_does_not_guess_while_the_registry_is_away(source: MemorySource, monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of(Registry(source), NARROW)

    def down(schema_id: int) -> Any:
        raise RegistryError("no answer")

    monkeypatch.setattr(source, "by_id", down)
    with pytest.raises(RegistryError):
        canonical_keys(connected(Avro(schema=NARROW), Registry(source)), pa.chunked_array([pa.array([key], pa.binary())]))


def test_a_program_can_be_pickled_after_its_serdes_were_used(registry: Registry) -> None:
    program = program_of(summing(), registry=registry)
    key = program.key_of_source[0]
    assert key.deserialize(key_of(registry, NARROW)) == Key("a")
    copied: Program = cloudpickle.loads(cloudpickle.dumps(program))
    assert copied.key_of_source[0].serialize(Key("a")) == key.serialize(Key("a"))


def test_without_a_registry_a_start_is_refused_with_the_line() -> None:
    with pytest.raises(
        ConfigError, match=r'"url" is missing, but .* \(declared at .*test_schema_registry.py.*schema_registry_url='
    ):
        program_of(summing())


def test_other_programs_need_none() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out")
    topology = builder.build()
    assert all(program_of(topology).nodes[name] is node for name, node in topology.nodes.items())
