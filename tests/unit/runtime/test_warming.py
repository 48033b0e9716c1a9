"""A standby warms its engine with the last records of its input."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock, call

from penstock.kafka.topics import Topics
from penstock.runtime.engine import Engine
from penstock.runtime.truth import Truth
from penstock.runtime.warming import warm_with_input


def test_the_last_record_of_each_partition_is_read_if_there_is_one() -> None:
    engine, truth, topics = Mock(spec=Engine), Mock(spec=Truth), Mock(spec=Topics)
    truth.source_of.return_value = {"orders": 0}
    topic = Mock(partitions=3)
    topic.name = "orders"
    topics.describe.return_value = {"orders": topic}
    topics.begin_offsets.return_value = {("orders", 0): 0, ("orders", 1): 7, ("orders", 2): 5}
    topics.end_offsets.return_value = {("orders", 0): 0, ("orders", 1): 7, ("orders", 2): 9}
    warm_with_input(engine, truth, cast("Any", topics))
    assert engine.mock_calls == [call.read_too({"orders": 0}), call.warm({("orders", 2): (8, 9)})]
