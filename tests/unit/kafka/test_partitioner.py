"""The partition of a key is the one that other producers choose; rows of a partition keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from penstock.epochs.wire import OUT
from penstock.kafka.partitioner import by_partition, murmur2, with_all_names, with_partitions

TOPICS = ["a", "b"]
COUNTS = {"a": 10, "b": 3}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": 1, "name": 0, "stage": 0, **row} for row in rows], schema=OUT)


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 5))
def test_hashes_are_those_of_a_reference(keys: list[bytes | None], skipped: int) -> None:
    found = murmur2(pa.array(keys, pa.binary())[skipped:])
    assert found.tolist() == [reference(key or b"") & 0xFFFFFFFF for key in keys[skipped:]]


def test_a_key_has_the_partition_that_java_would_choose() -> None:
    by_java = {b"21": 0, b"foobar": 6, b"a-little-bit-long-string": 2}  # from the tests of Kafka's client
    found = with_partitions(batch(*({"key": key} for key in by_java)), TOPICS, COUNTS)
    assert found.column("partition").to_pylist() == list(by_java.values())


BY_KAFKA_STREAMS = {b"ann": 4, b"bob": 8, b"": 1, b"a-little-bit-long-string": 2, "ü".encode(): 8}
"""What its WindowedStreamPartitioner chooses of ten partitions, for the time and the session windows of a key."""


@pytest.mark.parametrize("times", [b"\0" * 7 + b"\x14", b"\0" * 7 + b"\x1e" + b"\0" * 7 + b"\x14"])
def test_a_windowed_key_has_the_partition_that_kafka_streams_would_choose(times: bytes) -> None:
    keys = [key + times for key in BY_KAFKA_STREAMS]
    found = with_partitions(batch(*({"key": key, "partition": -len(times)} for key in keys)), TOPICS, COUNTS)
    assert found.column("partition").to_pylist() == list(BY_KAFKA_STREAMS.values())


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from([0, 1, -1, None]),
                "topic": st.just("c"),
                "key": st.none() | st.binary(max_size=9),
                "partition": st.none() | st.integers(-9, 2),
            }
        )
    )
)
def test_only_open_partitions_of_known_topics_are_filled(rows: list[dict[str, Any]]) -> None:
    given_rows = batch(*rows)
    found = with_partitions(given_rows, TOPICS, COUNTS)
    assert found.drop_columns("partition") == given_rows.drop_columns("partition")
    for row, partition in zip(rows, found.column("partition").to_pylist(), strict=True):
        tail = 0 if row["partition"] is None else -row["partition"]
        if tail < 0 or row["name"] not in (0, 1) or row["partition"] == 0:
            assert partition == row["partition"]
        elif row["key"] is not None:
            part = row["key"][: max(len(row["key"]) - tail, 0)]
            assert partition == (reference(part) & 0x7FFFFFFF) % COUNTS[TOPICS[row["name"]]]
        else:
            assert 0 <= partition < COUNTS[TOPICS[row["name"]]]


def test_rows_without_a_key_go_to_all_partitions_in_turn() -> None:
    found = with_partitions(batch(*({"key": None, "name": 1} for _ in range(6))), TOPICS, COUNTS)
    assert found.column("partition").to_pylist() == [0, 1, 2, 0, 1, 2]


def test_a_topic_that_a_record_has_chosen_gets_an_index() -> None:
    rows = batch({"name": 1}, {"name": -1, "topic": "z"}, {"name": -1, "topic": "y"}, {"name": -1, "topic": "z"})
    named, topics = with_all_names(rows, TOPICS)
    assert [topics[name] for name in named.column("name").to_pylist()] == ["b", "z", "y", "z"]
    same, known = with_all_names(rows.slice(0, 1), TOPICS)
    assert (same.column("name").to_pylist(), known) == ([1], TOPICS)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3))))
def test_the_rows_of_a_partition_keep_their_order(places: list[tuple[int, int]]) -> None:
    rows = batch(*({"name": name, "partition": place, "offset": at} for at, (name, place) in enumerate(places)))
    found = by_partition(rows, TOPICS)
    expected: dict[tuple[str, int], list[int]] = {}
    for at, (name, place) in enumerate(places):
        expected.setdefault((TOPICS[name], place), []).append(at)
    assert {place: own.column("offset").to_pylist() for place, own in found.items()} == expected
    assert all(np.diff(own.column("offset").to_numpy()).min(initial=1) > 0 for own in found.values())
