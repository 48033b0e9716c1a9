"""The backlog: what is offered to an epoch, what is left, and where a bounded run ends."""

from __future__ import annotations

import pytest

from penstock.errors import StateError
from penstock.runtime.attempts import Input
from penstock.runtime.backlog import Backlog

A, B = ("a", 0), ("b", 0)
NONE = frozenset[tuple[str, int]]()


def test_a_micro_batch_is_the_whole_backlog_unless_records_were_left() -> None:
    backlog = Backlog({A: 10, B: 20}, {})
    assert backlog.add({A: 10, B: 20}, {A: 15, B: 20})
    assert backlog.left == {A}
    backlog.taken_to({A: 12, B: 20})
    assert backlog.left == {A}
    assert not backlog.add({A: 12, B: 20}, {A: 17, B: 21})
    assert backlog.left == {A, B}
    offsets = {A: 12, B: 20}
    assert backlog.offer(None, offsets, NONE, 5) == Input(None, offsets, {A: 17, B: 21}, NONE, 5)
    backlog.taken_to({A: 17, B: 21})
    assert backlog.left == NONE


def test_no_records_beyond_a_limit_are_offered() -> None:
    backlog = Backlog({A: 10}, {A: 12})
    assert not backlog.is_at_its_end({A: 11})
    assert not backlog.add({A: 10}, {A: 15})
    assert backlog.offer(None, {A: 10}, NONE, None).read_to == {A: 12}
    assert backlog.is_at_its_end({A: 12})


def test_a_gap_before_a_micro_batch_is_refused() -> None:
    backlog = Backlog({A: 10}, {})
    with pytest.raises(StateError, match="Spark's stream does not continue from the committed offsets"):
        backlog.add({A: 11}, {A: 15})
    backlog.begin_anew({A: 11})
    assert backlog.add({A: 11}, {A: 15})
