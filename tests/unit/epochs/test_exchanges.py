"""What exchanges carry: no values of records that are only counted."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder, tumbling
from penstock.epochs.program import without_unread_values
from penstock.serdes import Serde, String
from penstock.serdes.presence import Presence
from penstock.topology import Node, SinkNode, SourceNode, Topology


def rekeyed(*verbs: Any) -> Topology:
    """Words under a new key, with one aggregation by each of the verbs."""
    builder = StreamsBuilder()
    words = builder.stream("lines", value=str).group_by(lambda _, word: word, name="words")
    for verb in verbs:
        verb(words)
    return builder.build()


def counted(words: Any) -> None:
    words.count(store="counts").to_stream().to("out")


def counted_by_window(words: Any) -> None:
    words.windowed_by(tumbling("1m")).count(store="windows")


def reduced(words: Any) -> None:
    words.reduce(lambda one, other: one + other, store="joined")


def serdes(nodes: dict[str, Node], *, internal: bool) -> list[Serde[Any]]:
    """Those of values at the ends of exchanges, or of topics."""
    return [node.value for node in nodes.values() if isinstance(node, (SourceNode, SinkNode)) and node.internal is internal]


@pytest.mark.parametrize("verbs", [(counted,), (counted_by_window,), (counted, counted_by_window)])
def test_an_exchange_carries_no_values_of_records_that_are_only_counted(verbs: tuple[Any, ...]) -> None:
    topology = rekeyed(*verbs)
    assert serdes(without_unread_values(topology.nodes), internal=True) == [Presence(), Presence()]
    assert serdes(dict(topology.nodes), internal=True) == [String(), String()], "the topology itself stays as it is"


@pytest.mark.parametrize("verbs", [(reduced,), (counted, reduced)])
def test_an_exchange_carries_values_that_someone_reads(verbs: tuple[Any, ...]) -> None:
    assert serdes(without_unread_values(rekeyed(*verbs).nodes), internal=True) == [String(), String()]


def test_topics_keep_their_values() -> None:
    nodes = dict(rekeyed(counted).nodes)
    assert serdes(without_unread_values(nodes), internal=False) == serdes(nodes, internal=False)


def test_any_value_is_present() -> None:
    assert all(Presence().deserialize(Presence().serialize(value)) for value in ("", 0, False, object()))
