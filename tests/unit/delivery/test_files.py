"""`Files`: what it writes, and where it continues."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.delivery import Delivered, Files
from penstock.errors import FencedError


def row(offset: int, value: object, partition: int = 0) -> Delivered:
    return Delivered("ann", value, 1_000 + offset, (), partition, offset)


def test_values_become_columns(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert files.open("shop/orders") == {}
    files.write([row(0, {"amount": 3}), row(1, None), row(2, {"note": "x"})], {0: 0}, {0: 3})
    [path] = tmp_path.glob("*.parquet")
    found = pq.read_table(path).drop_columns(["_timestamp"]).to_pylist()
    assert found == [
        {"_key": "ann", "_partition": 0, "_offset": 0, "amount": 3, "note": None},
        {"_key": "ann", "_partition": 0, "_offset": 1, "amount": None, "note": None},
        {"_key": "ann", "_partition": 0, "_offset": 2, "amount": None, "note": "x"},
    ]


def test_it_continues_where_the_files_end(tmp_path: Path) -> None:
    first = Files(tmp_path)
    first.open("shop/orders")
    first.write([row(0, {"a": 1}), row(7, {"a": 2}, partition=1)], {0: 0, 1: 0}, {0: 1, 1: 8})
    first.write([row(1, {"a": 3})], {0: 1}, {0: 2})
    assert Files(tmp_path).open("shop/orders") == {0: 2, 1: 8}


def test_of_two_instances_only_one_writes_a_batch(tmp_path: Path) -> None:
    one, two = Files(tmp_path), Files(tmp_path)
    one.open("shop/orders")
    two.open("shop/orders")
    one.write([row(0, {"a": 1})], {0: 0}, {0: 1})
    with pytest.raises(FencedError, match="Another instance"):
        two.write([row(0, {"a": 1})], {0: 0}, {0: 1})
    assert two.open("shop/orders") == {0: 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_instance_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".partial.parquet").write_bytes(b"half")
    assert Files(tmp_path).open("shop/orders") == {}
    assert not list(tmp_path.iterdir())


def test_a_schema_fixes_the_columns(tmp_path: Path) -> None:
    schema = pa.schema([("_offset", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
    files = Files(tmp_path, schema=schema)
    files.open("shop/orders")
    files.write([row(0, {"amount": 3, "other": 1})], {0: 0}, {0: 1})
    [path] = tmp_path.glob("*.parquet")
    table = pq.read_table(path)
    assert table.schema.remove_metadata() == schema
    assert table.to_pylist() == [{"_offset": 0, "amount": 3.0, "note": None}]
