"""From one configuration to the settings of every client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.clients import consumer_settings, input_settings, open_admin, open_consumer, producer_settings, spark_options
from penstock.kafka.statistics import with_statistics


def config(guarantee: str = "exactly_once", **kafka: Any) -> Config:
    settings = {name.replace("__", "."): value for name, value in kafka.items()}
    return Config.load(environment={}, bootstrap_servers="localhost:9092", guarantee=guarantee, kafka=settings)


def test_the_producer_has_safe_and_fast_defaults() -> None:
    settings = producer_settings(config(client__id="all", producer__linger__ms=50, restore__consumer__fetch__wait__max__ms=1))
    assert (settings["acks"], settings["enable.idempotence"], settings["partitioner"]) == ("all", "true", "murmur2_random")
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


def test_sparks_reader_gets_connection_and_isolation_only() -> None:
    options = spark_options(config(linger__ms=5, main__consumer__max__poll__records=10, client__rack="a"))
    assert options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.client.rack": "a",
        "kafka.max.poll.records": "10",
        "kafka.isolation.level": "read_committed",
    }
    assert "kafka.isolation.level" not in spark_options(config("at_least_once"))


@pytest.mark.parametrize("name", ["sasl__mechanism", "sasl__mechanisms"])
@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.Plain"), ("SCRAM-SHA-256", "scram.Scram"), ("scram-sha-512", "scram.Scram")]
)
def test_a_login_is_converted_for_java(name: str, mechanism: str, module: str) -> None:
    login = {name: mechanism, "sasl__username": "ann", "sasl__password": 'a"b\\c;\nd', "security__protocol": "sasl_ssl"}
    options = spark_options(config(**login))
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == mechanism.upper()
    module = f"org.apache.kafka.common.security.{module}LoginModule"
    assert options["kafka.sasl.jaas.config"] == f'{module} required username="ann" password="a\\"b\\\\c;\\nd";'


def test_an_incomplete_login_for_java_is_refused_with_a_cure() -> None:
    with pytest.raises(ConfigError, match=r"'OAUTHBEARER' needs main\.consumer\.sasl\.jaas\.config"):
        spark_options(config(sasl__mechanism="OAUTHBEARER"))
    with pytest.raises(ConfigError, match=r"'PLAIN' needs sasl\.username and sasl\.password"):
        spark_options(config(sasl__mechanism="PLAIN", sasl__username="ann"))
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    options = spark_options(config(sasl__mechanism="OAUTHBEARER", main__consumer__sasl__jaas__config=jaas))
    assert (options["kafka.sasl.mechanism"], options["kafka.sasl.jaas.config"]) == ("OAUTHBEARER", jaas)


def test_certificates_are_converted_for_java(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----", encoding="ascii")
    files = {f"ssl__{name}__location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    from_files = spark_options(config(**files, ssl__key__password="x"))
    assert from_files["kafka.ssl.truststore.type"] == from_files["kafka.ssl.keystore.type"] == "PEM"
    assert from_files["kafka.ssl.truststore.certificates"] == "-----BEGIN ca-----"
    assert from_files["kafka.ssl.keystore.certificate.chain"] == "-----BEGIN certificate-----"
    assert from_files["kafka.ssl.keystore.key"] == "-----BEGIN key-----"
    assert from_files["kafka.ssl.key.password"] == "x"
    inline = spark_options(config(ssl__ca__pem="ca", ssl__certificate__pem="certificate", ssl__key__pem="key"))
    assert (inline["kafka.ssl.truststore.type"], inline["kafka.ssl.keystore.type"]) == ("PEM", "PEM")
    assert (inline["kafka.ssl.truststore.certificates"], inline["kafka.ssl.keystore.key"]) == ("ca", "key")
    keystore = spark_options(config(ssl__keystore__location="k.p12", ssl__keystore__password="x"))
    assert (keystore["kafka.ssl.keystore.type"], keystore["kafka.ssl.keystore.location"]) == ("PKCS12", "k.p12")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location: cannot read '.*none' as PEM: FileNotFoundError"):
        spark_options(config(ssl__ca__location=str(tmp_path / "none")))


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
