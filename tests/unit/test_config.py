"""Configuration: where it comes from, what it refuses, and what it never shows."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config, Guarantee
from penstock.errors import ConfigError
from penstock.settings import Settings, is_secret

SERVERS = {"bootstrap.servers": "localhost:9092"}


def load(environment: dict[str, str] | None = None, path: Path | None = None, **overrides: Any) -> Config:
    return Config.load(path, environment or {}, **{"bootstrap_servers": "localhost:9092", **overrides})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def toml(text: str, name: str = "penstock.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def test_has_defaults_for_all_but_the_brokers() -> None:
    assert load() == Config(kafka=SERVERS)
    assert load().guarantee is Guarantee.EXACTLY_ONCE
    with pytest.raises(ConfigError, match=r"bootstrap\.servers.*PENSTOCK_BOOTSTRAP_SERVERS"):
        Config.load(environment={})
    with pytest.raises(ConfigError, match="bootstrap"):
        load(bootstrap_servers=" ")


def test_reads_every_setting_from_a_file() -> None:
    toml(
        """
        guarantee = "at_least_once"
        lanes = 8
        shards = 64
        epoch_interval = "250ms"
        max_epoch_records = 10
        engine = "local"
        small_epoch_records = 5
        state_dir = "here"
        store_engine = "rocksdb"
        transaction_timeout = "2m"
        broker_timeout = 5000
        replication_factor = 3
        [kafka]
        "bootstrap.servers" = "one:9092"
        linger.ms = 7
        socket.keepalive.enable = true
        [spark]
        master = "local[2]"
        spark.driver.memory = "2g"
        [schema_registry]
        url = "https://registry:8081"
        auto.register.schemas = false
        """
    )
    assert Config.load(environment={}) == Config(
        guarantee=Guarantee.AT_LEAST_ONCE,
        lanes=8,
        shards=64,
        epoch_interval_ms=250,
        max_epoch_records=10,
        engine="local",
        small_epoch_records=5,
        state_dir=Path("here"),
        store_engine="rocksdb",
        transaction_timeout_ms=120_000,
        broker_timeout_ms=5_000,
        replication_factor=3,
        kafka={"bootstrap.servers": "one:9092", "linger.ms": "7", "socket.keepalive.enable": "true"},
        spark={"master": "local[2]", "spark.driver.memory": "2g"},
        schema_registry={"url": "https://registry:8081", "auto.register.schemas": "false"},
    )


def test_the_environment_has_every_setting_too() -> None:
    environment = {
        "PENSTOCK_BOOTSTRAP_SERVERS": "two:9092",
        "PENSTOCK_GUARANTEE": "at_least_once",
        "PENSTOCK_LANES": " 4 ",
        "PENSTOCK_EPOCH_INTERVAL": "1s",
        "PENSTOCK_ENGINE": "local",
        "PENSTOCK_STATE_DIR": "42",
        "PENSTOCK_REPLICATION_FACTOR": "-1",
        "PENSTOCK_FAULT": "x:1:kill",
        "PENSTOCK_SERVICE_HOST": "not ours",
        "PATH": "",
    }
    config = Config.load(environment=environment)
    assert (config.kafka["bootstrap.servers"], config.guarantee, config.lanes) == ("two:9092", Guarantee.AT_LEAST_ONCE, 4)
    assert (config.epoch_interval_ms, config.state_dir, config.replication_factor) == (1_000, Path("42"), -1)
    assert config.engine == "local"


def test_a_standby_is_configured_like_everything_else() -> None:
    assert load().standby is False
    environment = {"PENSTOCK_STANDBY": "true", "PENSTOCK_STANDBY_TIMEOUT": "4s", "PENSTOCK_STANDBY_ADDRESS": "[2001:db8::1]:7071"}
    config = load(environment)
    assert (config.standby, config.standby_timeout_ms, config.standby_endpoint) == (True, 4_000, ("2001:db8::1", 7_071))
    assert load().standby_endpoint == ("127.0.0.1", 0)


def test_copies_may_be_in_a_directory_or_elsewhere() -> None:
    assert (load().state_copies, load().state_copy_interval_ms) == (None, 600_000)
    assert load(state_copies=Path("copies")) == load({"PENSTOCK_STATE_COPIES": "copies"})
    assert load(state_copies="s3://bucket/copies", state_copy_interval="1m").state_copy_interval_ms == 60_000


def test_arguments_win_over_the_environment_which_wins_over_the_file() -> None:
    path = toml('lanes = 1\nshards = 5\nmax_epoch_records = 9\n[kafka]\n"linger.ms" = 1\n"client.id" = "a"', "other.toml")
    config = load({"PENSTOCK_LANES": "2", "PENSTOCK_SHARDS": "6"}, path, lanes=3, kafka={"linger.ms": 2})
    assert (config.lanes, config.shards, config.max_epoch_records) == (3, 6, 9)
    assert config.kafka == {"bootstrap.servers": "localhost:9092", "linger.ms": "2", "client.id": "a"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"lane": 3}, "arguments: unknown setting 'lane'. Did you mean 'lanes'"),
        ({"zzzzzz": 3}, "Known settings: admin_address, .*, bootstrap_servers, broker_timeout"),
        ({"lanes": 0}, "lanes: expected a value between 1 and 10000.$"),
        ({"lanes": "8"}, "lanes: expected a whole number.$"),
        ({"lanes": True}, "lanes: expected a whole number"),
        ({"lanes": 17, "shards": 16}, "lanes: 17 lanes cannot share 16 shards.*Set lanes to 16 or less"),
        ({"shards": "many"}, "shards: expected a whole number"),
        *(({"cluster_ports": ports}, "cluster_ports: expected the first and") for ports in ("7100", "0-9", "9-7", "1-65536", 7)),
        ({"state_copies": ""}, "state_copies: expected a directory or a URI"),
        ({"state_copies": 7}, "state_copies: expected a directory or a URI"),
        ({"state_copies": "s3://key:secret@bucket"}, "state_copies: a URI with a password would be logged. Put credentials into"),
        ({"state_copies": "copies", "store_engine": "rocksdb"}, "state_copies: stores of rocksdb cannot be copied"),
        ({"state_copy_interval": "10ms"}, "state_copy_interval: expected a value between 1000 and"),
        ({"epoch_interval": "soon"}, 'epoch_interval: expected a number and a unit, such as "250ms"'),
        ({"epoch_interval": "-1s"}, "epoch_interval: expected a value between 0 and .* ms"),
        ({"epoch_interval": 1.5}, "epoch_interval: expected"),
        ({"transaction_timeout": "999ms"}, "transaction_timeout: expected a value between 1000 and"),
        ({"replication_factor": 0}, "replication_factor: 0"),
        ({"standby": True, "guarantee": "at_least_once"}, "^standby: needs guarantee = exactly_once: only transactions fence"),
        ({"standby": "maybe"}, "^standby: expected true or false.$"),
        ({"standby_address": "here"}, "^standby_address: expected host:port.$"),
        ({"standby_address": "here:65536"}, "^standby_address: expected host:port.$"),
        ({"standby_timeout": "1s"}, "^standby_timeout: expected a value between 2000 and"),
        ({"engine": "flink"}, "^engine: expected one of spark, local.$"),
        ({"engine": None}, "^engine: expected one of spark, local"),
        ({"small_epoch_records": -1}, "^small_epoch_records: expected a value between 0 and 2147483647.$"),
        ({"small_epoch_records": "7"}, "^small_epoch_records: expected a whole number"),
        ({"small_epoch_records": True}, "^small_epoch_records: expected a whole number"),
        ({"small_epoch_record": 7}, "Did you mean 'small_epoch_records'"),
        ({"guarantee": "twice"}, "guarantee: expected one of exactly_once, at_least_once"),
        ({"state_dir": ""}, "state_dir"),
        ({"state_dir": 5}, "state_dir"),
        ({"store_engine": "files"}, "store_engine: expected one of lmdb, rocksdb"),
        ({"kafka": "localhost"}, "kafka must be a table"),
        ({"kafka": {"linger.ms": [1]}}, "linger.ms: expected text"),
        ({"spark": {"driver.memory": "1g"}}, "spark: unknown setting 'driver.memory'. Use 'master', or a name that begins with"),
    ],
)
def test_refuses_by_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load(**overrides)


def test_refuses_a_misspelt_variable_and_a_bad_file() -> None:
    with pytest.raises(ConfigError, match=r"PENSTOCK_LANE\. Did you mean PENSTOCK_LANES"):
        load({"PENSTOCK_LANE": "2"})
    with pytest.raises(ConfigError, match="lanes: expected a whole number"):
        load({"PENSTOCK_LANES": "two"})
    with pytest.raises(ConfigError, match=r"Cannot read 'none\.toml': No such file"):
        load(path=Path("none.toml"))
    with pytest.raises(ConfigError, match=r"bad\.toml' is not valid TOML"):
        load(path=toml("lanes = = 2", "bad.toml"))
    with pytest.raises(ConfigError, match=r"odd\.toml: unknown setting 'epoch_interval_ms'\. Did you mean 'epoch_interval'"):
        load(path=toml("epoch_interval_ms = 5", "odd.toml"))


@pytest.mark.parametrize("prefix", ["", "producer.", "main.consumer.", "restore.consumer."])
@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize(
    "name", ["group.id", "transactional.id", "enable.auto.commit", "auto.offset.reset", "transaction.timeout.ms"]
)
def test_refuses_settings_that_penstock_owns(prefix: str, guarantee: Guarantee, name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{prefix}{name}' cannot be set: "):
        load(kafka={prefix + name: "x"}, guarantee=guarantee)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_uncommitted"),
        ("main.consumer.isolation.level", "READ_UNCOMMITTED"),
        ("enable.idempotence", "false"),
        ("producer.enable.idempotence", False),
        ("acks", "1"),
        ("acks", 0),
        ("producer.request.required.acks", "1"),
    ],
)
def test_refuses_what_breaks_exactly_once(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' must be '.*' under exactly_once"):
        load(kafka={name: value})
    assert load(kafka={name: value}, guarantee="at_least_once").guarantee is Guarantee.AT_LEAST_ONCE


def test_accepts_the_values_that_exactly_once_requires() -> None:
    load(kafka={"isolation.level": "read_committed", "enable.idempotence": "True", "acks": -1, "producer.acks": "all"})


def test_reads_secrets_from_the_environment_and_files() -> None:
    Path("password").write_text("se cret\n", encoding="utf-8")
    kafka = {"sasl.password": "file:password", "sasl.username": "env:KAFKA_USER"}
    config = load({"KAFKA_USER": "ann"}, kafka=kafka, spark={"spark.eventLog.dir": "file:/events"})
    assert (config.kafka["sasl.password"], config.kafka["sasl.username"]) == ("se cret", "ann")
    assert config.spark["spark.eventLog.dir"] == "file:/events"
    with pytest.raises(ConfigError, match=r"sasl\.username: environment variable 'KAFKA_USER' is not set"):
        load({}, kafka=kafka)
    Path("password").unlink()
    with pytest.raises(ConfigError, match=r"sasl\.password: cannot read 'password': FileNotFoundError"):
        load({"KAFKA_USER": "ann"}, kafka=kafka)


SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "sasl.jaas.config",
    "main.consumer.sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "basic.auth.user.info",
    "SASL.PASSWORD",
]
CANARY = "c4n4ry"


def test_reads_secrets_of_spark_by_reference_and_leaves_its_urls_alone() -> None:
    Path("key").write_text("from-a-file\n")
    given = {
        "spark.authenticate.secret": "env:SPARK_SECRET",
        "spark.hadoop.fs.s3a.secret.key": "file:key",
        "spark.driver.host": "env:POD_ADDRESS",
        "spark.jars": "file:/opt/some.jar",
    }
    config = load({"SPARK_SECRET": "from-the-environment", "POD_ADDRESS": "10.0.0.7"}, spark=given)
    assert config.spark["spark.authenticate.secret"] == "from-the-environment"
    assert config.spark["spark.hadoop.fs.s3a.secret.key"] == "from-a-file"
    assert (config.spark["spark.driver.host"], config.spark["spark.jars"]) == ("10.0.0.7", "file:/opt/some.jar")
    assert "from-" not in str(config)
    with pytest.raises(ConfigError, match=r"spark\.authenticate\.secret: environment variable 'SPARK_SECRET' is not set"):
        load(spark=given)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("ci", ["", "true"], ids=["at a desk", "in CI"])
def test_never_shows_a_secret(name: str, ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", ci)  # pytest shows whole differences there
    config = load(kafka={name: CANARY}, spark={f"spark.{name}": CANARY, "spark.url": f"https://ann:{CANARY}@host/"})
    shown = [repr(config), str(config), f"{config}", repr(asdict(config)), repr(copy.deepcopy(config).kafka), repr(config.spark)]
    shown.append(repr(dict(config.kafka)))
    shown += [repr(getattr(config, field.name)) for field in fields(config)] + [repr(pickle.loads(pickle.dumps(config)))]
    assert not any(CANARY in text for text in shown)
    assert all("[hidden]" in text for text in shown[:4])
    with pytest.raises(AssertionError) as failure:
        assert config == load(kafka={name: "other"})
    assert CANARY not in str(failure.value)


@pytest.mark.parametrize(
    "change", [{"lanes": 0}, {"guarantee": "x"}, {"kafka": {"sasl.password": [CANARY]}}, {"spark": {"x": CANARY}}]
)
def test_errors_do_not_show_a_secret_either(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        load({"SECRET": CANARY}, **{"kafka": {"sasl.password": "env:SECRET"}, **change})
    assert CANARY not in str(error.value)


def test_shows_what_is_not_secret() -> None:
    assert "localhost:9092" in repr(load())
    assert not is_secret("bootstrap.servers", "localhost:9092")
    assert not is_secret("sasl.username", "ann")


def test_settings_are_an_immutable_mapping() -> None:
    given = dict(SERVERS)
    config = Config(kafka=given)
    given["linger.ms"] = "5"
    assert dict(config.kafka) == SERVERS
    assert len(config.kafka) == 1
    assert isinstance(config.kafka, Settings)
    with pytest.raises(TypeError):
        config.kafka["linger.ms"] = "5"  # type: ignore[index]
    assert replace(config, lanes=2).kafka == config.kafka


@given(
    st.dictionaries(
        st.sampled_from(["lanes", "shards", "epoch_interval", "guarantee", "state_dir", "kafka", "x"]),
        st.none() | st.text() | st.integers() | st.floats() | st.lists(st.integers()),
    )
)
def test_any_value_is_accepted_or_refused_by_name(overrides: dict[str, Any]) -> None:
    refusal = None
    try:
        load(**overrides)
    except ConfigError as error:
        refusal = str(error)
    assert refusal is None or any(name in refusal for name in overrides)


@pytest.mark.parametrize("name", ["columns", "tracing"])
@pytest.mark.parametrize(("text", "expected"), [("true", True), ("False", False)])
def test_a_switch_is_on_or_off_also_in_the_environment(name: str, text: str, expected: bool) -> None:
    environment = {"PENSTOCK_BOOTSTRAP_SERVERS": "b:1", f"PENSTOCK_{name.upper()}": text}
    assert getattr(Config.load(environment=environment), name) is expected
    with pytest.raises(ConfigError, match=f"{name}: expected true or false"):
        Config.load(environment={**environment, f"PENSTOCK_{name.upper()}": "maybe"})


class TestSchemaRegistry:
    def test_without_a_table_there_is_none(self) -> None:
        assert load().registry_settings is None

    def test_its_url_has_a_name_of_its_own(self) -> None:
        by_argument = load(schema_registry_url="http://registry:8081")
        assert by_argument == load({"PENSTOCK_SCHEMA_REGISTRY_URL": "http://registry:8081"})
        settings = by_argument.registry_settings
        assert settings is not None
        assert settings.urls == ("http://registry:8081",)

    @pytest.mark.parametrize("name", ["basic.auth.user.info", "bearer.auth.token", "ssl.key.password"])
    def test_secrets_are_read_by_reference_and_never_shown(self, name: str) -> None:
        url, certificate = "https://registry:8081", "me.pem"
        table = {"url": url, "ssl.certificate.location": certificate, name: "env:SECRET"}
        config = load({"SECRET": "me:s3cr3t"}, schema_registry=table)
        settings = config.registry_settings
        assert settings is not None
        assert "me:s3cr3t" in (settings.user, settings.token, settings.key_password)
        for shown in (
            repr(config),
            str(asdict(config)),
            repr(settings),
            pickle.dumps(config.schema_registry[name]).decode("latin-1"),
        ):
            assert "s3cr3t" not in shown

    def test_what_cannot_work_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r'schema_registry: "url" is missing'):
            load(schema_registry={"auto.register.schemas": "false"})
        with pytest.raises(ConfigError, match="schema_registry must be a table"):
            load(schema_registry="http://registry:8081")

    def test_credentials_over_plain_http_are_warned_about(self, caplog: pytest.LogCaptureFixture) -> None:
        load(schema_registry={"url": "http://registry", "bearer.auth.token": "s3cr3t"})
        assert "credentials are sent to an http:// URL" in caplog.text
        assert "s3cr3t" not in caplog.text
