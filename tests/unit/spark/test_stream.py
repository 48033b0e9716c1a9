"""The stream of epochs, as far as it can be tested without Spark."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.spark.stream import GROUP, POLL_RECORDS, EpochStream, is_light, polled, polling


class Application:
    """What a running application has open."""

    def on_batch(self, frame: Any, ends: Mapping[Any, int]) -> None:
        """Take a batch."""


def test_a_stopped_stream_keeps_no_references() -> None:
    """The JVM keeps its callbacks: they must not keep an application alive that has ended."""
    application = Application()
    is_there = weakref.ref(application)
    stream = EpochStream(MagicMock(), {}, {("a", 0): 3}, application.on_batch, 100, 10)
    stream.stop()
    del application
    gc.collect()
    assert is_there() is None
    stream._on_batch(MagicMock(), {})


@pytest.mark.parametrize(
    ("batch_records", "records"),
    [(None, 4), (20_000, 4_096), (4_096, 4_096), (4_095, 1_024), (300, 256), (16, 16), (3, 1), (1, 1)],
)
def test_fewer_large_records_are_read_at_a_time(batch_records: int | None, records: int) -> None:
    assert polled(batch_records) == records
    assert is_light(batch_records) == (records == POLL_RECORDS)


def test_reads_of_the_same_batch_size_share_consumers() -> None:
    """Spark caches them by group: another number of records needs other consumers."""
    found = polling({GROUP: "spark-kafka-source-1", "kafka.max.poll.records": "7", "kafka.x": "y"}, 64)
    assert found == {GROUP: "spark-kafka-source-1-64", "kafka.max.poll.records": "64", "kafka.x": "y"}
