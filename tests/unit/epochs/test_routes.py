"""The shard of a record: that of its key, however its producer has encoded it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamsBuilder
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, from_topics
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import canonical_keys, on_shards
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import Control, Kind, control_row, wire
from penstock.serdes import Bytes, Int64, Json, Serde, SerializationError, String, UUIDs
from tests.unit.epochs.application import SHARDS, program_of

ORIGINS = (("in", 0), ("in", 3), ("in", 11), ("other", 2))
EPOCH = Epoch(0, -1, 0, ORIGINS)


def reading(**keys: Any) -> Program:
    """A program that reads topics with keys of these types."""
    builder = StreamsBuilder()
    for topic, key in keys.items():
        builder.stream({"in_": "in"}.get(topic, topic), key=key, value=bytes).to("out")
    return program_of(builder.build())


def arrived(*records: tuple[int, int, bytes | None]) -> pa.Table:
    """Records by source, origin and key."""
    rows = [
        {"name": source, "origin": origin, "offset": offset, "timestamp": 0, "key": key}
        for offset, (source, origin, key) in enumerate(records)
    ]
    return from_topics([pa.RecordBatch.from_pylist(rows, schema=INPUT)])


def shards(program: Program, table: pa.Table) -> list[int]:
    found = on_shards(Assignment(program, EPOCH), table)
    assert found.drop_columns(["shard"]) == table.drop_columns(["shard"])
    assert found.schema == table.schema
    numbers: list[int] = found.column("shard").to_pylist()
    return numbers


def canonical(serde: Serde[Any], keys: Sequence[bytes | None]) -> list[bytes | None]:
    return list(canonical_keys(serde, pa.chunked_array([pa.array(keys, pa.binary())])))


class TestCanonicalKeys:
    def test_json_is_what_our_serde_would_write(self) -> None:
        keys = [b'{"a": 1, "b": [1, 2]}', b'{"a":1,"b":[1,2]}', b'{"a":1,\n "b":[ 1 , 2 ]}', None]
        assert canonical(Json(), keys) == [b'{"a":1,"b":[1,2]}'] * 3 + [None]

    def test_malformed_text_is_decoded_and_encoded_again(self) -> None:
        assert canonical(String(), [b"a\xff", b"plain", None]) == ["a\ufffd".encode(), b"plain", None]

    def test_well_formed_text_is_left_alone(self) -> None:
        keys = ["añ𝄞".encode(), b"", None]
        assert canonical(String(), keys) == keys

    def test_javas_short_uuids_are_written_out(self) -> None:
        assert canonical(UUIDs(), [b"1-2-3-4-5", str(UUID(int=7)).upper().encode()]) == [
            b"00000001-0002-0003-0004-000000000005",
            str(UUID(int=7)).encode(),
        ]

    def test_a_key_that_cannot_be_decoded_is_unchanged(self) -> None:
        assert canonical(Json(), [b"{", b"\xff", b'{"a": 1}']) == [b"{", b"\xff", b'{"a":1}']
        assert canonical(UUIDs(), [b"no uuid"]) == [b"no uuid"]

    def test_a_key_that_decodes_to_none_is_unchanged(self) -> None:
        assert canonical(Json(), [b"null", b" null"]) == [b"null", b" null"]

    def test_a_key_that_cannot_be_encoded_again_is_unchanged(self) -> None:
        class Once(Serde[bytes]):
            deserialize = staticmethod(bytes)

            @staticmethod
            def serialize(value: bytes) -> bytes:
                raise SerializationError("no")

        assert canonical(Once(), [b"key"]) == [b"key"]

    def test_serdes_with_one_encoding_per_value_are_not_called(self) -> None:
        for serde in (Bytes(), Int64()):
            assert canonical(serde, [b"bad", None]) == [b"bad", None]

    @given(st.lists(st.none() | st.binary(max_size=6), max_size=5))
    def test_texts_are_what_string_makes_of_them(self, keys: list[bytes | None]) -> None:
        serde = String()
        assert canonical(serde, keys) == [None if key is None else serde.serialize(serde.deserialize(key)) for key in keys]


class TestOnShards:
    def test_a_record_belongs_to_the_shard_of_its_key(self) -> None:
        keys = [b"key-%d" % number for number in range(40)]
        found = shards(reading(in_=bytes), arrived(*((0, 0, key) for key in keys)))
        assert found == [shard_of(key, SHARDS) for key in keys]
        assert set(found) == set(range(SHARDS))

    def test_a_key_has_the_same_shard_however_it_was_encoded(self) -> None:
        users = [{"at": ["x", number], "u": number} for number in range(20)]
        spaced, compact = (
            [json.dumps(user, separators=separators).encode() for user in users] for separators in (None, (",", ":"))
        )
        found = [shards(reading(in_=dict), arrived(*((0, 0, key) for key in keys))) for keys in (spaced, compact)]
        assert found[0] == found[1] == [shard_of(key, SHARDS) for key in compact]
        assert [shard_of(key, SHARDS) for key in spaced] != found[0]

    def test_malformed_text_belongs_to_the_shard_of_its_decoded_key(self) -> None:
        program = reading(in_=str)
        found = shards(program, arrived((0, 0, b"a\xff"), (0, 0, "a\ufffd".encode()), (0, 0, b"b")))
        assert found == [*[shard_of("a\ufffd".encode(), SHARDS)] * 2, shard_of(b"b", SHARDS)]

    def test_a_key_that_cannot_be_decoded_belongs_to_the_shard_of_its_bytes(self) -> None:
        assert shards(reading(in_=dict), arrived((0, 0, b"{no"))) == [shard_of(b"{no", SHARDS)]

    @pytest.mark.parametrize("key", [str, bytes, dict])
    def test_a_record_without_a_key_belongs_to_the_shard_of_its_partition(self, key: Any) -> None:
        found = shards(reading(in_=key, other=key), arrived((0, 0, None), (0, 1, None), (0, 2, None), (1, 3, None), (0, 0, b"1")))
        assert found == [0, 3, 11 % SHARDS, 2, shard_of(b"1", SHARDS)]

    def test_each_source_reads_its_own_keys(self) -> None:
        program = reading(in_=dict, other=bytes)
        spaced = b'{"u": 1}'
        found = shards(program, arrived((1, 3, spaced), (0, 0, spaced), (1, 3, spaced)))
        raw, read = shard_of(spaced, SHARDS), shard_of(b'{"u":1}', SHARDS)
        assert found == [raw, read, raw]
        assert raw != read

    def test_rows_that_have_a_shard_keep_it(self) -> None:
        letter = wire(1, shard=[6], kind=[Kind.DEAD_LETTER], name=[-1], topic=["dead"], key=[b"key"])
        rows = pa.concat_tables([control_row(Control(), 5), arrived((0, 0, b"a"), (0, 1, None)), letter])
        assert shards(reading(in_=str), rows) == [5, shard_of(b"a", SHARDS), 3, 6]
        assert shards(reading(in_=str), letter) == [6]

    def test_an_empty_table_stays_empty(self) -> None:
        assert shards(reading(in_=dict), from_topics([])) == []
