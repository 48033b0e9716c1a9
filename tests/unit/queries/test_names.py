"""The names of stores in queries: a table is known by its topic, too, unless it was given a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import StreamsBuilder, Topology
from penstock.errors import UnknownStoreError
from penstock.queries import CommittedState, view
from penstock.testing import TopologyTestDriver
from tests.unit.epochs.application import Application, Raw
from tests.unit.queries.asgi_client import AsgiClient

GENERATED = "in-STATE-STORE-0000000000"
ROWS = [Raw(b"ann", b"Anne", 1_000), Raw(b"bob", b"Bob", 2_000)]


def joined(store: str | None = None) -> Topology:
    """A table in which a join looks keys up."""
    builder = StreamsBuilder()
    people = builder.table("in", value=str, store=store)
    people.join(people.map_values(len), lambda name, length: f"{name} {length}").to_stream().to("out", value=str)
    return builder.build()


def read_as_a_stream() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    return builder.build()


def named_like_another() -> Topology:
    builder = StreamsBuilder()
    people = builder.table("in", value=str)
    people.join(people.map_values(len, store="in"), lambda name, length: f"{name} {length}").to_stream().to("out", value=str)
    return builder.build()


def state_of(topology: Callable[[], Topology], directory: Path) -> CommittedState:
    app = Application(directory, topology)
    app.start(2)
    app.step(ROWS)
    return CommittedState(app.running, lambda: app.epoch)


def test_a_table_is_queried_by_its_topic(tmp_path: Path) -> None:
    state = state_of(joined, tmp_path)
    assert dict(view(state, "in").all()) == dict(view(state, GENERATED).all()) == {"ann": "Anne", "bob": "Bob"}
    client = AsgiClient(state)
    assert client.get("/stores/in/get", key="ann")[1]["value"] == "Anne"
    assert [row["key"] for row in client.get("/stores/in/range")[1]["rows"]] == ["ann", "bob"]
    assert [store["name"] for store in client.get("/stores")[1]["stores"]] == ["in", GENERATED]
    state.close()


def test_a_name_of_its_own_is_the_only_one(tmp_path: Path) -> None:
    state = state_of(lambda: joined("people"), tmp_path)
    assert view(state, "people")["ann"] == "Anne"
    with pytest.raises(UnknownStoreError, match=r"Known stores: people\. To query what topic 'in' has, read it with table\("):
        view(state, "in")
    state.close()


def test_a_topic_that_nothing_keeps_is_refused_with_the_cure(tmp_path: Path) -> None:
    state = state_of(read_as_a_stream, tmp_path)
    with pytest.raises(UnknownStoreError, match=r"read it with table\('in', store='in'\)\.$"):
        view(state, "in")
    state.close()


def test_a_store_with_that_name_comes_first(tmp_path: Path) -> None:
    state = state_of(named_like_another, tmp_path)
    assert view(state, "in")["ann"] == 4
    assert view(state, GENERATED)["ann"] == "Anne"
    state.close()


def test_the_driver_knows_it_too() -> None:
    with TopologyTestDriver(joined()) as driver:
        driver.input("in").pipe("Anne", key="ann")
        assert driver.store("in")["ann"] == driver.store(GENERATED)["ann"] == "Anne"
        assert list(driver.stores()) == [GENERATED]


def test_a_global_table_as_well() -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", value=str)
    builder.stream("in", value=str).join(names, lambda value, name: name, on=lambda key, value: value).to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("names").pipe("Anne", key="ann")
        assert driver.store("names")["ann"] == "Anne"
