"""`Files`: what it writes, and where it continues."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.delivery import Delivered, Files
from penstock.errors import ConfigError, FencedError, TopicError


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


def test_a_directory_is_for_one_topic(tmp_path: Path) -> None:
    first, second = Files(tmp_path), Files(tmp_path)
    first.open("shop/orders")
    first.write([row(0, {"a": 1})], {0: 0}, {0: 1})
    assert second.open("shop/returns") == {}  # and not where the other topic is
    with pytest.raises(TopicError, match=r"has the records of 'shop/orders' .*a directory of its own"):
        second.write([row(0, {"a": 1})], {0: 0}, {0: 1})


def test_a_topic_that_was_created_again_is_refused(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.open("shop/orders", "first")
    files.write([row(0, {"a": 1})], {0: 0}, {0: 1})
    assert files.open("shop/orders", "first") == {0: 1}
    with pytest.raises(TopicError, match=r"created again \(its id was first and is second\)"):
        files.open("shop/orders", "second")


def test_it_continues_what_earlier_versions_have_written(tmp_path: Path) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({b"penstock.offsets": b'{"0": 3}'})
    pq.write_table(table, tmp_path / "000000000007.parquet")
    files = Files(tmp_path)
    assert files.open("shop/orders", "first") == {0: 3}
    files.write([row(3, {"a": 1})], {0: 3}, {0: 4})
    assert Files(tmp_path).open("shop/returns") == {}
    with pytest.raises(TopicError, match="created again"):
        files.open("shop/orders", "second")


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "000000000000.parquet")
    with pytest.raises(ConfigError, match=r"000000000000\.parquet was not written by a delivery"):
        Files(tmp_path).open("shop/orders")


def test_offsets_without_rows_have_the_columns_of_the_file_before(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.open("shop/orders")
    files.write([row(0, {"a": 1})], {0: 0}, {0: 1})
    files.write([], {0: 1}, {0: 2})
    assert Files(tmp_path).open("shop/orders") == {0: 2}
    first, second = sorted(tmp_path.glob("*.parquet"))
    assert pq.read_table(second).num_rows == 0
    assert pq.read_schema(second).equals(pq.read_schema(first))


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


def written(directory: Path, *values: object, schema: pa.Schema | None = None) -> list[dict[str, object]]:
    """Deliver these values in one batch, and in a batch for each; return the fields that files have, which must be the same."""
    found: list[list[dict[str, object]]] = []
    for name, cut in (("one", [list(values)]), ("each", [[value] for value in values])):
        files = Files(directory / name, schema=schema)
        files.open("shop/orders")
        begin = 0
        for batch in cut:
            files.write([row(begin + number, value) for number, value in enumerate(batch)], {0: begin}, {0: begin + len(batch)})
            begin += len(batch)
        assert Files(directory / name).open("shop/orders") == {0: len(values)}
        rows = [each for path in sorted((directory / name).glob("*.parquet")) for each in pq.read_table(path).to_pylist()]
        found.append([{column: value for column, value in each.items() if not column.startswith("_")} for each in rows])
    assert repr(found[0]) == repr(found[1])  # types, too
    return found[0]


class TestAFileHasWhatTheRecordsSay:
    @pytest.mark.parametrize(
        "values",
        [
            [1, "x"],
            ["x", 1, 2, "y"],
            [True, 1],
            [1.5, True],
            ["x", b"y"],
            [2**53 + 1, 0.5],
            [date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=timezone.utc)],
            [[1], ["x"]],
            [{"b": 1.5}, {"b": True}],
            [{"b": 1}, [1]],
        ],
        ids=repr,
    )
    def test_values_of_different_types(self, tmp_path: Path, values: list[object]) -> None:
        assert written(tmp_path, *({"a": value} for value in values)) == [{"a": value} for value in values]

    @pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**64), 10**60])
    def test_integers_of_more_than_64_bits(self, tmp_path: Path, number: int) -> None:
        assert written(tmp_path, {"a": number}, {"a": 1}, {"a": [number]}) == [{"a": number}, {"a": 1}, {"a": [number]}]

    def test_objects_without_fields(self, tmp_path: Path) -> None:
        values: list[object] = [{"a": {}}, {"a": {"b": {}, "c": 1}}, {"a": [{}]}]
        assert written(tmp_path, *values) == [{"a": None}, {"a": {"b": None, "c": 1}}, {"a": [None]}]

    def test_fields_named_like_the_own_columns(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        files.open("shop/orders")
        files.write([row(41, {"_offset": 7, "_key": "k", "a": 1})], {0: 41}, {0: 42})
        [found] = pq.read_table(tmp_path / "000000000000.parquet").drop_columns(["_timestamp"]).to_pylist()
        expected = {"_key": "ann", "_partition": 0, "_offset": 41, "value._offset": 7, "value._key": "k", "a": 1}
        assert found == expected

    def test_a_schema_holds_all_that_it_can_convert(self, tmp_path: Path) -> None:
        schema = pa.schema([("a", pa.string())])
        assert written(tmp_path, {"a": 1}, {"a": "x"}, {"a": 2.5}, schema=schema) == [{"a": "1"}, {"a": "x"}, {"a": "2.5"}]
        assert len(list((tmp_path / "one").iterdir())) == 1


def test_a_batch_of_several_files_is_continued_in_the_middle(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.open("shop/orders")
    batch = [row(0, {"a": 1}), row(5, {"a": 1}, partition=1), row(1, {"a": "x"}), row(2, {"a": 3})]
    files.write(batch, {0: 0, 1: 5}, {0: 4, 1: 9})
    offsets = []
    while paths := sorted(tmp_path.glob("*.parquet")):
        offsets.append(Files(tmp_path).open("shop/orders"))
        paths[-1].unlink()
    assert offsets == [{0: 4, 1: 9}, {0: 2, 1: 6}, {0: 1, 1: 6}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 10**80}, "column 'a': .*precision"),
        ({"a": [1, "x"]}, r"the values of 'a\.\[\]' have different types"),
        ({"a": object()}, "column 'a': Could not convert"),
        ({"_key": 1, "value._key": 2}, r"two fields of the value would be in one column"),
    ],
)
def test_nothing_of_a_batch_is_written_if_a_value_cannot_be(tmp_path: Path, value: object, why: str) -> None:
    files = Files(tmp_path)
    files.open("shop/orders")
    with pytest.raises(ValueError, match=why) as caught:
        files.write([row(0, {"a": 1}), row(1, {"a": "x"}), row(2, value)], {0: 0}, {0: 3})
    assert files.is_of_record(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_is_not_about_a_record(tmp_path: Path) -> None:
    errors = [FencedError("x"), TopicError("x"), ConfigError("x"), OSError("full"), MemoryError()]
    assert not any(map(Files(tmp_path).is_of_record, errors))


def test_a_function_may_choose_the_columns(tmp_path: Path) -> None:
    files = Files(tmp_path, row=lambda key, value: {"customer": key, **(value or {"is_deleted": True})})
    files.open("shop/orders")
    files.write([row(0, {"a": 1}), row(1, None)], {0: 0}, {0: 2})
    found = pq.read_table(tmp_path / "000000000000.parquet").select(["customer", "a", "is_deleted"]).to_pylist()
    assert found == [{"customer": "ann", "a": 1, "is_deleted": None}, {"customer": "ann", "a": None, "is_deleted": True}]
