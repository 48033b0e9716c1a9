"""Expressions over columns: the same values as by rows, or doubt. An error of any record is always a doubt."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import col, struct
from penstock.expressions.columns.documents import can_read, read
from penstock.expressions.columns.evaluation import evaluate, holds, is_supported, paths_in, replaced
from penstock.expressions.columns.scalars import read_scalars
from penstock.expressions.columns.vectors import DoubtError
from penstock.expressions.nodes import Literal, Node
from penstock.expressions.rows import condition, evaluator
from penstock.serdes import Int64
from tests.unit.expressions.trees import FLOATS, INTS, NAMES, RECORDS, TREES

NUMBERS: list[dict[str, Any]] = [{"a": number, "b": number - 3.5, "c": number % 3} for number in range(1, 9)]
OF_ONE_TYPE = st.one_of(
    *(
        st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys("abc", kind | st.none())), min_size=1)
        for kind in (INTS, FLOATS)
    ),
    st.lists(st.fixed_dictionaries({"a": st.booleans(), "b": INTS, "c": st.sampled_from(("x", "ä", "\U0001f600"))}), min_size=1),
)


def column(documents: list[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(documents, pa.binary())])


def text_of(record: Any) -> bytes:
    """A document as others write it: with NaN, lone surrogates and large integers in it."""
    return json.dumps(record).encode()


def by_rows(node: Node, documents: list[bytes]) -> list[Any] | None:
    """The values by rows; None if any record has an error."""
    evaluate_row = evaluator(node)
    try:
        return [evaluate_row(None, orjson.loads(document)) for document in documents]
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None


def by_columns(node: Node, documents: list[bytes]) -> list[Any] | None:
    paths = frozenset(paths_in(node))
    if not is_supported(node) or not can_read(paths):
        return None
    try:
        return evaluate(node, read(paths, column(documents))).objects()
    except DoubtError:
        return None


def same(one: list[Any], other: list[Any]) -> bool:
    """1, 1.0 and True are equal, and 0.0 and -0.0, but none is the other."""
    return [repr(value) for value in one] == [repr(value) for value in other]


@given(TREES, st.lists(RECORDS, min_size=1, max_size=5) | OF_ONE_TYPE)
@settings(max_examples=600)
def test_any_expression_is_what_rows_compute_or_in_doubt(node: Node, records: list[Any]) -> None:
    documents = [text_of(record) for record in records]
    found = by_columns(node, documents)
    if found is not None:
        expected = by_rows(node, documents)
        assert expected is not None, "an error that columns did not see"
        assert same(found, expected)


@given(TREES, OF_ONE_TYPE)
@settings(max_examples=300)
def test_a_condition_holds_for_the_same_records(node: Node, records: list[Any]) -> None:
    documents = [text_of(record) for record in records]
    paths = frozenset(paths_in(node))
    if not is_supported(node) or not can_read(paths):
        return
    try:
        found = holds(node, read(paths, column(documents))).tolist()
    except DoubtError:
        return
    assert found == [condition(node)(None, orjson.loads(document)) for document in documents]


A, B, C = col("a"), col("b"), col("c")


@pytest.mark.parametrize(
    "expression",
    [
        *(A, A + B, A - C, A * 2, A / 4, A // 3, A % 3, B // 1.5, B % 1.5, -A, -B, A > B, A == 3, C != 1, A + col("none")),
        *((A > 3) & (B < 2), (A > 3) | (B < 2), ~(A > 3), (C != 0) & (A / C > 2), (C == 0) | (A % C == 0), A.is_null()),
        *(col("none").is_null(), A.required(), col("none", "deep"), col("a", int), col("b", float), col("a", float), A * 0.5),
        *((col("none") > 3) & (A > 2), (A > 2) | (col("none") > 3), col("none") == "x"),
    ],
    ids=lambda expression: expression.node.describe(),
)
def test_plain_expressions_are_computed(expression: Any) -> None:
    documents = [text_of(record) for record in NUMBERS]
    expected = by_rows(expression.node, documents)
    found = by_columns(expression.node, documents)
    assert found is not None
    assert expected is not None
    assert same(found, expected)


@pytest.mark.parametrize(
    "expression",
    [A / C, A % C, A + 2**62 * 1 + 2**62, A * 2**62, B & (A > 1), (A == "x"), col("none").required(), col("a", str)],
    ids=lambda expression: expression.node.describe(),
)
def test_what_may_be_an_error_is_in_doubt(expression: Any) -> None:
    assert by_columns(expression.node, [text_of(record) for record in NUMBERS]) is None


@pytest.mark.parametrize(
    "document",
    [
        b'{"a":1,"x":"\xff"}',
        b'{"a":1,"x":1e400}',
        b'{"a":1,"x":-1.5E+999}',
        b'{"a":1,"x":[[1.0e309]]}',
        b'{"a":1,"x":' + b"9" * 400 + b"}",
        b'{"a":1,"x":' + b"9" * 250 + b"e99}",
        b'{"a":1,"x":' + b"[" * 1100 + b"]" * 1100 + b"}",
        b'{"a":18446744073709551616}',
        b'{"a":9223372036854775808}',
        b'{"a":1,}',
        b"null",
        b"[1]",
        b'{"a":{"b":1}}',
        b'{"a":"text"}',
        b'{"a":true}',
        b'{"a":1.0}',
        b'{"a":1,"x":"\\ud800"}',
        b"",
    ],
    ids=lambda document: repr(document[:24]),
)
def test_a_record_that_rows_would_refuse_or_read_differently_is_in_doubt(document: bytes) -> None:
    for documents in ([b'{"a":1}', document], [document, b'{"a":1}']):
        with pytest.raises(DoubtError):
            evaluate(A.node, read(frozenset({("a",)}), column(documents)))


@pytest.mark.parametrize("documents", [[b'{"a":1}', None, b"{}"], [None, None]])
def test_the_fields_of_a_record_without_a_value_are_null(documents: list[bytes | None]) -> None:
    frame = read(frozenset({("a",)}), pa.chunked_array([pa.array(documents, pa.binary())]))
    assert evaluate(A.node, frame).objects() == [1, None, None][3 - len(documents) :]
    assert frame.have_value.tolist() == [document is not None for document in documents]
    assert frame.where(~frame.have_value).have_value.tolist() == [False] * documents.count(None)
    assert replaced(struct(b=A).node, frame).have_value.all()


@given(st.lists(INTS.filter(lambda value: abs(value) < 2**63) | st.none(), min_size=1), TREES)
def test_scalars_are_columns_of_their_own(values: list[int | None], node: Node) -> None:
    frame = read_scalars(Int64(), pa.chunked_array([pa.array([Int64().serialize(v) if v is not None else None for v in values])]))
    assert frame.have_value.tolist() == [value is not None for value in values]
    if is_supported(node) and paths_in(node) <= {()}:
        with suppress(DoubtError):
            assert same(evaluate(node, frame).objects(), [evaluator(node)(None, value) for value in values])


@given(st.lists(st.lists(st.tuples(NAMES, INTS | st.just({"b": 1})), max_size=4), min_size=1))
def test_of_fields_with_the_same_name_the_last_counts(records: list[list[tuple[str, Any]]]) -> None:
    documents = [b"{" + b",".join(b'"%s":%s' % (n.encode(), orjson.dumps(v)) for n, v in record) + b"}" for record in records]
    found = by_columns(col("a", "b").node, documents)
    if found is not None:
        assert found == by_rows(col("a", "b").node, documents)


@given(st.binary(max_size=20) | st.text(alphabet='{}[]:,"ae10.+-\\ \n', max_size=12).map(str.encode))
def test_any_bytes_in_an_unread_field_are_read_as_rows_read_them(rest: bytes) -> None:
    document = b'{"a":1,"x":' + rest + b"}"
    found = by_columns(A.node, [document])
    if found is not None:
        assert found == by_rows(A.node, [document])


def test_large_numbers_in_text_are_no_reason_for_doubt() -> None:
    assert by_columns(A.node, [b'{"a":1,"id":"1e999"}', b'{"a":2,"id":"' + b"9" * 500 + b'"}']) == [1, 2]


@given(st.integers(150, 350), st.integers(0, 350), st.sampled_from(["", "e99", "E+108", "e-99", "e400"]), st.booleans())
def test_long_numbers_are_read_as_rows_read_them(digits: int, fraction: int, exponent: str, is_text: bool) -> None:
    number = f"{'9' * digits}{'.' if fraction else ''}{'3' * fraction}{exponent}".encode()
    document = b'{"a":1,"x":"%s"}' % number if is_text else b'{"a":1,"x":%s}' % number
    assert by_columns(A.node, [b"{}", document]) == by_rows(A.node, [b"{}", document])


def test_a_slice_of_a_column_is_checked_alone() -> None:
    documents = column([b'{"a":1,"x":"\xff"}', b'{"a":2}', b'{"a":3,"x":1e999}']).slice(1, 1)
    assert evaluate(A.node, read(frozenset({("a",)}), documents)).objects() == [2]


def test_a_new_value_has_the_fields_of_its_struct_and_no_others() -> None:
    frame = read(frozenset({("a",), ("c",)}), column([text_of(record) for record in NUMBERS]))
    new = replaced(struct(double=A * 2, c=C).node, frame)
    assert evaluate((col("double") + col("c")).node, new).objects() == [each["a"] * 2 + each["c"] for each in NUMBERS]
    assert evaluate(col("a").node, new).objects() == [None] * len(NUMBERS)
    for path in (("double", "x"), ()):
        with pytest.raises(DoubtError):
            evaluate(col(*path).node, new)


def test_a_new_value_may_be_a_scalar() -> None:
    new = replaced((A * 2).node, read(frozenset({("a",)}), column([b'{"a":4}', b"{}"])))
    assert evaluate((col() + 1).node, new).objects() == [9, None]
    assert new.have_value.tolist() == [True, False]
    assert replaced(Literal("x", "'x'"), new).have_value.all()


def test_the_right_side_is_computed_only_where_the_left_one_does_not_decide() -> None:
    records = [{"a": 1, "c": 0}, {"a": 6, "c": 2}, {"a": 1, "c": 1}, {}]
    node = ((C != 0) & (A / C > 2)).node
    assert by_columns(node, [text_of(record) for record in records]) == [False, True, False, None]
