"""What a task is given to do: a stage of an epoch on one lane."""

from __future__ import annotations

from penstock import StreamsBuilder, Topology
from penstock.epochs.assignment import Assignment
from penstock.epochs.program import Epoch
from tests.unit.epochs.application import program_of


def rekeyed() -> Topology:
    builder = StreamsBuilder()
    by_value = builder.stream("in", value=str).select_key(lambda key, value: value)
    by_value.group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


def test_it_knows_its_shards_and_where_it_has_to_run() -> None:
    first = Assignment(program_of(rekeyed(), lanes=3, shards=8), Epoch(0, -1, 0))
    second = first.at(1, 2)
    assert (second.program, second.epoch, second.stage, second.lane) == (first.program, first.epoch, 1, 2)
    assert [list(first.at(0, lane).shards) for lane in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert (first.needs_lanes, second.needs_lanes, second.is_serial) == (False, True, False)
