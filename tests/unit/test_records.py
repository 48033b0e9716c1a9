"""Records: what a processor may change about one."""

from __future__ import annotations

import dataclasses

import pytest

from penstock import Record, Windowed
from penstock.records import Change

RECORD = Record("k", 1, 5, (("h", b"1"), ("h", None)))


def test_a_change_makes_a_new_record() -> None:
    assert RECORD.with_key(2) == Record(2, 1, 5, RECORD.headers)
    assert RECORD.with_value("v") == Record("k", "v", 5, RECORD.headers)
    assert RECORD.with_timestamp(9) == Record("k", 1, 9, RECORD.headers)
    assert RECORD.with_headers(()) == Record("k", 1, 5)
    assert RECORD.with_headers([("h", b"2")]).headers == (("h", b"2"),)  # type: ignore[arg-type]
    assert Record("k", 1, 5, (("h", b"1"), ("h", None))) == RECORD


def test_a_record_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECORD.value = 2  # type: ignore[misc]
    assert hash(RECORD) == hash(Record("k", 1, 5, RECORD.headers))


def test_the_types_of_tables_are_tuples() -> None:
    assert Change(1) == (1, None, True)
    assert Windowed("k", 0, 10) == ("k", 0, 10)
