"""The backlog: what is offered to an epoch, what is left, and where a bounded run ends."""

from __future__ import annotations

import pytest

from penstock.errors import StateError
from penstock.runtime.loop.agenda import Backlog
from penstock.runtime.loop.dispatcher import Offer

A, B = ("a", 0), ("b", 0)
NONE = frozenset[tuple[str, int]]()


def test_what_an_epoch_leaves_is_offered_again() -> None:
    backlog = Backlog({A: 10, B: 20}, {})
    backlog.add({A: 10, B: 20}, {A: 15, B: 20})
    assert backlog.left == {A}
    backlog.taken_to({A: 12, B: 20})
    assert backlog.left == {A}
    backlog.add({A: 12, B: 20}, {A: 17, B: 21})
    assert backlog.left == {A, B}
    offsets = {A: 12, B: 20}
    assert backlog.offer(offsets, NONE, 5) == Offer(offsets, {A: 17, B: 21}, NONE, 5)
    backlog.taken_to({A: 17, B: 21})
    assert backlog.left == NONE


def test_no_records_beyond_a_limit_are_offered() -> None:
    backlog = Backlog({A: 10}, {A: 12})
    assert not backlog.is_at_its_end({A: 11})
    backlog.add({A: 10}, {A: 15})
    assert backlog.offer({A: 10}, NONE, None).read_to == {A: 12}
    assert backlog.is_at_its_end({A: 12})


def test_a_gap_in_the_input_is_refused() -> None:
    backlog = Backlog({A: 10}, {})
    with pytest.raises(StateError, match="The input does not continue from the committed offsets"):
        backlog.add({A: 11}, {A: 15})
    backlog.begin_anew({A: 11})
    backlog.add({A: 11}, {A: 15})
    assert backlog.left == {A}
