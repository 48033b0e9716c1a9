"""The steps of an epoch, as text: they follow from the topology; those of an atomic section also from where lanes are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import StreamsBuilder, Topology, bounded_disorder
from penstock.epochs.walk import Act, Step, walk_of
from penstock.epochs.wire import OUT, WIRE
from tests.unit.engines.programs import TOPOLOGIES
from tests.unit.epochs.application import program_of


def entered() -> Topology:
    """Records need their entry, and then the lanes of their keys at once."""
    builder = StreamsBuilder()
    timed = builder.stream("in", value=str, watermark=bounded_disorder("1s"))
    timed.group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


MAKERS = {**TOPOLOGIES, "entered": entered}

STEPS = {
    "stateless": ["stage 0: records enter where they were read, from topics, to Kafka"],
    "every kind of store": ["stage 0: each lane runs a stage, from topics", "stage 1: each lane runs a stage, to Kafka"],
    "re-keyed": [
        "stage 0: records enter where they were read, from topics",
        "stage 1: each lane runs a stage",
        "stage 2: each lane runs a stage, to Kafka",
    ],
    "by watermark": [
        "stage 0: records enter where they were read, from topics",
        "stage 1: each lane runs a stage, to Kafka",
    ],
    "atomic": [
        "stage 0: records enter where they were read, from topics",
        "stage 1: each lane runs a stage",
        "stage 2: each lane runs a stage",
        "stage 3: each lane runs a stage, to Kafka",
    ],
    "clocked": ["stage 0: each lane runs a stage, from topics, to Kafka"],
    "entered": [
        "stage 0: records enter where they were read, from topics",
        "stage 0: each lane runs a stage, to Kafka",
    ],
}

SPREAD = {
    "atomic": [
        "stage 0: records enter where they were read, from topics",
        "stage 1: each lane runs a stage",
        "stage 2: the first lane runs an atomic section",
        "stage 2: each lane writes what the section has changed",
        "stage 3: each lane runs a stage, to Kafka",
    ],
}


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_steps_of_an_epoch(name: str, is_spread: bool) -> None:
    steps = walk_of(replace(program_of(MAKERS[name]()), is_spread=is_spread))
    assert [str(step) for step in steps] == (SPREAD.get(name, STEPS[name]) if is_spread else STEPS[name])


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_records_come_first_and_rows_for_kafka_last(name: str, is_spread: bool) -> None:
    steps = walk_of(replace(program_of(MAKERS[name]()), is_spread=is_spread))
    assert [step.is_first for step in steps] == [True] + [False] * (len(steps) - 1)
    assert [step.schema for step in steps] == [WIRE] * (len(steps) - 1) + [OUT]


def test_a_step_travels_as_a_value() -> None:
    assert Step(Act.RUN, 1, is_first=False, is_last=True) == Step(Act.RUN, 1, is_first=False, is_last=True)
    assert hash(Step(Act.RUN, 1, is_first=False, is_last=True)) != hash(Step(Act.APPLY, 1, is_first=False, is_last=True))
