"""How large an epoch may be where nobody says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.memory import LEAST, MOST, default_epoch_bytes, machine_memory

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
def test_there_is_a_least_and_a_most(memory: str, machine: int, expected: int) -> None:
    assert default_epoch_bytes({"spark.driver.memory": memory}, machine_bytes=machine) == expected


def test_what_spark_will_refuse_is_not_refused_here() -> None:
    assert default_epoch_bytes({"spark.driver.memory": "plenty"}, machine_bytes=1 << 40) == GB // 8


def test_a_container_has_what_it_may_have(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    whole = machine_memory((limit,))
    limit.write_text("max\n")
    assert machine_memory((limit,)) == whole
    limit.write_text("123456789\n")
    assert machine_memory((limit,)) == 123_456_789
