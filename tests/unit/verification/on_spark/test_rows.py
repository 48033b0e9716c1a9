"""What was seen of an application: every claim of a row can fail."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from verification.on_spark.__main__ import LEAST_LOOKS, Row
from verification.on_spark.processes import is_task

GOOD = Row(
    "three hosts",
    wanted=8,
    wanted_hosts=3,
    slots=8,
    hosts=3,
    records=100,
    in_spark_tasks=100,
    active_tasks=(8, 8),
    looks=LEAST_LOOKS,
    right=True,
)


def test_a_row_in_which_all_is_as_promised_is_good() -> None:
    assert GOOD.is_good


@pytest.mark.parametrize(
    "seen",
    [
        {"in_spark_tasks": 99},
        {"in_spark_tasks": 101},
        {"fallbacks": [1]},
        {"active_tasks": (7, 8)},
        {"active_tasks": (8, 9)},
        {"looks": LEAST_LOOKS - 1},
        {"slots": 7, "active_tasks": (7, 7)},
        {"hosts": 2},
        {"right": False},
    ],
)
def test_a_row_in_which_anything_is_not_as_promised_is_not_good(seen: dict[str, Any]) -> None:
    assert not replace(GOOD, **seen).is_good


def test_this_process_is_no_task() -> None:
    assert not is_task(os.getpid())
