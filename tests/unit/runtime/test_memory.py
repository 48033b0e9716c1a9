"""The default size limit of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.instance import LEAST, MOST, default_epoch_bytes, machine_memory

GB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(None, GB // 8), ("2g", GB // 4), ("512m", GB // 16), ("1048576k", GB // 8), ("4096", GB // 2), ("3gb", 3 * GB // 8)],
)
def test_it_follows_sparks_memory(memory: str | None, expected: int) -> None:
    settings = {} if memory is None else {"spark.driver.memory": memory}
    assert default_epoch_bytes(settings, machine_bytes=1 << 40) == expected


def test_a_small_machine_has_smaller_epochs() -> None:
    assert default_epoch_bytes({"spark.driver.memory": "2g"}, machine_bytes=4 * GB) == GB // 16


@pytest.mark.parametrize(("memory", "machine", "expected"), [("1m", 1 << 40, LEAST), ("900g", 1 << 50, MOST)])
def test_it_has_a_minimum_and_a_maximum(memory: str, machine: int, expected: int) -> None:
    assert default_epoch_bytes({"spark.driver.memory": memory}, machine_bytes=machine) == expected


def test_a_size_that_spark_will_refuse_is_not_refused_here() -> None:
    assert default_epoch_bytes({"spark.driver.memory": "plenty"}, machine_bytes=1 << 40) == GB // 8


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    whole = machine_memory((limit,))
    limit.write_text("max\n")
    assert machine_memory((limit,)) == whole
    limit.write_text("123456789\n")
    assert machine_memory((limit,)) == 123_456_789
