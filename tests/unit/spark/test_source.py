"""Reading by ranges of offsets, as far as it can be tested without Spark."""

from __future__ import annotations

import pytest

from penstock.spark.source import GROUP, polled, polling


@pytest.mark.parametrize(
    ("batch_records", "records"),
    [(None, 4), (20_000, 4_096), (4_096, 4_096), (4_095, 1_024), (300, 256), (16, 16), (3, 1), (1, 1)],
)
def test_fewer_large_records_are_read_at_a_time(batch_records: int | None, records: int) -> None:
    assert polled(batch_records) == records


def test_reads_of_the_same_batch_size_share_consumers() -> None:
    """Spark caches them by group: another number of records needs other consumers."""
    found = polling({GROUP: "spark-kafka-source-1", "kafka.max.poll.records": "7", "kafka.x": "y"}, 64)
    assert found == {GROUP: "spark-kafka-source-1-64", "kafka.max.poll.records": "64", "kafka.x": "y"}
