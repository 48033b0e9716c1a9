"""Keeps the engine of a standby ready, with the input that its next epoch would read."""

from __future__ import annotations

from penstock.kafka.topics import Topics, partitions_of
from penstock.runtime.engine import Engine
from penstock.runtime.truth import Truth


def warm_with_input(engine: Engine, truth: Truth, topics: Topics) -> None:
    """Warm the engine, with the last record of each partition that epochs read."""
    source_of = truth.source_of(truth.read_topics)
    engine.read_too(source_of)
    partitions = partitions_of(topics.describe(source_of).values())
    begins, ends = topics.begin_offsets(partitions), topics.end_offsets(partitions)
    engine.warm({place: (end - 1, end) for place, end in ends.items() if begins[place] < end})
