"""From one configuration to the settings of every client."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.clients import consumer_settings, input_settings, open_admin, open_consumer, producer_settings
from penstock.kafka.statistics import with_statistics


def config(guarantee: str = "exactly_once", **kafka: Any) -> Config:
    settings = {name.replace("__", "."): value for name, value in kafka.items()}
    return Config.load(environment={}, bootstrap_servers="localhost:9092", guarantee=guarantee, kafka=settings)


def test_the_producer_has_safe_and_fast_defaults() -> None:
    settings = producer_settings(config(client__id="all", producer__linger__ms=50, restore__consumer__fetch__wait__max__ms=1))
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", "true")
    assert (settings["linger.ms"], settings["client.id"], settings["bootstrap.servers"]) == ("50", "all", "localhost:9092")
    assert not any(name.startswith(("producer.", "restore.", "fetch.")) for name in settings)


@pytest.mark.parametrize(
    ("limits", "message", "batch"),
    [
        ([], "1000000", "1000000"),
        ([1_048_588], "1048588", "1000000"),
        ([2_000, 10_000_000], "10000000", "2000"),
        ([1_000_000, 2_000_000_000], "1000000000", "1000000"),
    ],
)
def test_batches_fit_the_smallest_topic_and_records_the_largest(limits: list[int], message: str, batch: str) -> None:
    settings = producer_settings(config(), limits)
    assert (settings["message.max.bytes"], settings["batch.size"]) == (message, batch)


def test_size_settings_of_the_user_win() -> None:
    assert producer_settings(config(producer__message__max__bytes=5_000), [9_000])["message.max.bytes"] == "5000"


def test_consumers_read_committed_records_and_commit_nothing() -> None:
    settings = consumer_settings(config(client__id="all", restore__consumer__client__id="restore", producer__acks="all"), "app")
    assert (settings["isolation.level"], settings["enable.auto.commit"]) == ("read_committed", "false")
    assert (settings["group.id"], settings["client.id"], settings["auto.offset.reset"]) == ("app", "restore", "error")
    assert "acks" not in settings


def test_the_reader_of_source_topics_reads_committed_records_unless_at_least_once_is_enough() -> None:
    assert input_settings(config(), "app")["isolation.level"] == "read_committed"
    assert input_settings(config("at_least_once"), "app")["isolation.level"] == "read_uncommitted"


def test_a_users_setting_replaces_the_default_of_the_reader_of_source_topics() -> None:
    settings = input_settings(config(queued__max__messages__kbytes=1_000), "app")
    assert settings["queued.max.messages.kbytes"] == "1000"


def test_a_setting_of_the_main_consumer_is_only_for_the_reader_of_source_topics() -> None:
    given = config(client__rack="a", main__consumer__client__rack="b", producer__acks="all", restore__consumer__client__rack="c")
    assert input_settings(given, "app")["client.rack"] == "b"
    assert consumer_settings(given, "app")["client.rack"] == "c"
    assert producer_settings(given)["client.rack"] == "a"
    assert not any(name.startswith("main.") for name in {**input_settings(given, "app"), **producer_settings(given)})


def test_nothing_makes_the_reader_of_source_topics_another_groups() -> None:
    assert input_settings(config(), "app")["group.id"] == "app"


@pytest.mark.parametrize("client", [open_admin, lambda settings: open_consumer(consumer_settings(settings, "app"))])
def test_a_setting_unknown_to_the_client_is_named(client: Any) -> None:
    with pytest.raises(ConfigError, match=r'No such configuration property: "no\.such"'):
        client(config(no__such=1))


def test_statistics_come_every_ten_seconds_unless_the_user_decides() -> None:
    def heard(text: str) -> None: ...

    own = with_statistics({"a": "b"}, heard)
    assert own == {"a": "b", "statistics.interval.ms": "10000", "stats_cb": heard}
    user = with_statistics(producer_settings(config(statistics__interval__ms=0)), heard)
    assert user["statistics.interval.ms"] == "0"
    assert with_statistics({"a": "b"}, None) == {"a": "b"}
