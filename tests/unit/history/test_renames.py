"""The registers of a store go with its name."""

from __future__ import annotations

from penstock.history.renames import taken_over
from penstock.state import last_registers, registers_row


def test_registers_are_copied_under_the_new_name() -> None:
    known = {"old/observed_stream_time": 7, "old:emitted-until": 5, "older/sequence": 1, "/epoch": 3}
    assert taken_over(known, {"new": "old"}) == {**known, "new/observed_stream_time": 7, "new:emitted-until": 5}


def test_registers_of_a_node_with_the_new_name_stay() -> None:
    known = {"old/punctuator 0": 7, "new/punctuator 0": 9}
    assert taken_over(known, {"new": "old"}) == known


def test_a_row_of_registers_is_read_as_it_was_written() -> None:
    key, value = registers_row({"new/sequence": 2})
    assert last_registers([key], [value]) == {"new/sequence": 2}
