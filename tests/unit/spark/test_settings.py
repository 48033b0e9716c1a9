"""The settings for Spark, as far as they can be tested without starting it."""

from __future__ import annotations

import json

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
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


BROKER = {"bootstrap.servers": "host:9092"}
CLUSTER = {"master": "spark://host:7077", "spark.authenticate.secret": "s"}


def test_only_one_machine_is_bound_to_loopback() -> None:
    assert session_settings(2, {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in session_settings(2, CLUSTER)


def test_a_cluster_authenticates_and_runs_each_task_once() -> None:
    found = session_settings(2, CLUSTER)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert (found["spark.task.maxFailures"], found["spark.stage.maxConsecutiveAttempts"]) == ("1", "1")
    assert session_settings(2, {**CLUSTER, "spark.network.timeout": "9s"})["spark.network.timeout"] == "9s"


class TestWhatAClusterNeeds:
    def test_its_secret_unless_it_is_open_to_everyone(self) -> None:
        with pytest.raises(ConfigError, match=r"'spark.authenticate.secret' is missing"):
            Config(kafka=BROKER, spark={"master": "spark://host:7077"}, lanes=2)
        Config(kafka=BROKER, spark={"master": "spark://host:7077", "spark.authenticate": "false"}, lanes=2)
        Config(kafka=BROKER, spark={"master": "yarn"}, lanes=2)

    def test_a_number_of_lanes(self) -> None:
        with pytest.raises(ConfigError, match=r"lanes: not set\. On a cluster"):
            Config(kafka=BROKER, spark=CLUSTER)

    @pytest.mark.parametrize("name", ["spark.task.maxFailures", "spark.locality.wait"])
    def test_what_must_not_be_changed(self, name: str) -> None:
        with pytest.raises(ConfigError, match=rf"'{name}' cannot be set on a cluster"):
            Config(kafka=BROKER, spark={**CLUSTER, name: "3"}, lanes=2)
        Config(kafka=BROKER, spark={name: "3"})
