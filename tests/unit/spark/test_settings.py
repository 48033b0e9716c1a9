"""The settings for Spark, as far as they can be tested without starting it."""

from __future__ import annotations

import json

import pytest

from penstock.spark.session import _with_retries, session_settings
from penstock.spark.source import _by_topic


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,9]", "local[2,9]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_tasks_are_retried_unless_the_user_configures_it(master: str, expected: str) -> None:
    assert _with_retries(master) == expected


def test_offsets_for_spark_are_by_topic_and_partition() -> None:
    start = {("b", 1): 7, ("a", 0): 5, ("b", 0): 0}
    assert json.loads(_by_topic(start, sorted)) == {"b": [0, 1], "a": [0]}
    offsets = _by_topic(start, lambda offsets: {str(partition): offset for partition, offset in offsets.items()})
    assert json.loads(offsets) == {"b": {"1": 7, "0": 0}, "a": {"0": 5}}


def test_names_of_topics_are_unchanged() -> None:
    assert json.loads(_by_topic({('with "quotes"', 0): 1}, sorted)) == {'with "quotes"': [0]}


def test_spark_does_not_limit_the_rows_of_an_epoch_unless_configured() -> None:
    assert session_settings(2, {})["spark.driver.maxResultSize"] == "0"
    assert session_settings(2, {"spark.driver.maxResultSize": "2g"})["spark.driver.maxResultSize"] == "2g"
