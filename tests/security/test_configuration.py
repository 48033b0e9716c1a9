"""Settings: invalid ones are refused by name and without their value, and secrets are never shown."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.clients import consumer_settings, input_settings, open_consumer, producer_settings
from penstock.settings import HIDDEN, Secret, revealed
from penstock.spark.context import context_settings
from verification.harness.canaries import canaries_in

SERVERS = {"bootstrap.servers": "localhost:9092"}
CANARY = "c4n4ry-of-settings"
NAMES = [field.name.removesuffix("_ms") for field in fields(Config)]
BLANK = ("state_dir", "admin_certificate", "admin_key")
FREE_TEXT = ("admin_token", "admin_read_token", "admin_hosts", "plugins", "state_copies", *BLANK)


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(environment: dict[str, str] | None = None, /, **overrides: Any) -> Config:
    overrides["kafka"] = {**SERVERS, **overrides.get("kafka", {})}
    return Config.load(environment=environment or {}, **overrides)


def refusal(environment: dict[str, str] | None = None, /, **overrides: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(environment, **overrides)
    return str(error.value)


@pytest.mark.security(14)
class TestRefusals:
    @pytest.mark.parametrize("name", [name for name in NAMES if name not in {"kafka", "spark", "schema_registry", *FREE_TEXT}])
    @pytest.mark.parametrize("value", [CANARY, "", " ", "True ", "１２", [CANARY], {CANARY: CANARY}], ids=repr)
    def test_an_invalid_value_is_refused_by_name_and_not_repeated(self, name: str, value: Any) -> None:
        said = refusal(**{name: value})
        assert said.startswith(f"{name}: ")
        assert CANARY not in said

    @pytest.mark.parametrize("name", [name for name in NAMES if name not in {"kafka", "spark", "schema_registry", *FREE_TEXT}])
    def test_an_invalid_variable_is_refused_by_name_and_not_repeated(self, name: str) -> None:
        said = refusal({f"PENSTOCK_{name.upper()}": CANARY})
        assert name in said
        assert CANARY not in said

    @pytest.mark.parametrize("name", BLANK)
    @pytest.mark.parametrize("value", ["", "  ", "a\0b", 7])
    def test_an_invalid_path_is_refused(self, name: str, value: Any) -> None:
        assert refusal(**{name: value}) == f"{name}: expected a path."

    @pytest.mark.parametrize("name", ["lanse", "Lanes", "lanes ", "l\u0430nes", "lanes\u200b"])
    def test_a_misspelt_setting_is_refused_with_the_right_name(self, name: str) -> None:
        said = refusal(**{name: 2})
        assert "Did you mean 'lanes'?" in said
        assert said.isascii()  # a letter that only looks like another is escaped

    @pytest.mark.parametrize("name", ["acks ", "\u0430cks", "enable.idempotence\u200b", "", "producer.", "a b", "x\ny"])
    def test_invalid_names_of_client_settings_are_refused(self, name: str) -> None:
        assert refusal(kafka={name: "1"}).isascii()

    @pytest.mark.parametrize("name", ["spark.", "spark.a b", "spark\u0430.x", "sparc.x", "failOnDataLoss", "spark.\u0430"])
    def test_unknown_spark_settings_are_refused(self, name: str) -> None:
        if name != "spark.":  # Spark itself accepts it
            assert "unknown setting" in refusal(spark={name: "1"})

    @pytest.mark.parametrize("name", ["acks", "isolation.level", "client.id", "producer.linger.ms"])
    @pytest.mark.parametrize("value", ["all ", "\tall", "all\n", "\u00a0all"])
    def test_blanks_around_a_value_are_refused(self, name: str, value: str) -> None:
        assert "has blanks around its value" in refusal(kafka={name: value})

    @pytest.mark.parametrize(
        "name", ["security.protocol", "fetch.wait.max.ms", "broker.address.family", "enable.sparse.connections"]
    )
    def test_a_value_refused_by_the_client_is_not_repeated(self, name: str) -> None:
        with pytest.raises(ConfigError) as error:
            open_consumer(consumer_settings(load(kafka={name: CANARY}), "app"))
        assert name in str(error.value)
        assert CANARY not in str(error.value)

    @given(st.text(), st.text())
    def test_any_client_setting_is_accepted_or_refused(self, name: str, value: str) -> None:
        try:
            load(kafka={name: value})
        except ConfigError as error:
            assert str(error).startswith("kafka: ") or name in str(error)  # noqa: PT017 - or none is raised


@pytest.mark.security(15)
class TestExactlyOnce:
    @pytest.mark.parametrize("prefix", ["", "producer.", "main.consumer.", "restore.consumer."])
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("isolation.level", "read_uncommitted"),
            ("enable.idempotence", "false"),
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.auto.commit", "true"),
            ("transactional.id", "mine"),
            ("group.id", "mine"),
            ("auto.offset.reset", "latest"),
            ("transaction.timeout.ms", "1000"),
        ],
    )
    def test_client_settings_that_break_it_are_refused(self, prefix: str, name: str, value: str) -> None:
        assert f"'{prefix}{name}'" in refusal(kafka={prefix + name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("spark.speculation", "true"),
            ("spark.speculation", " TRUE"),
            ("spark.speculation", "1"),
        ],
    )
    def test_spark_settings_that_break_it_are_refused(self, name: str, value: str) -> None:
        assert f"'{name}'" in refusal(spark={name: value})

    def test_lost_input_cannot_be_ignored(self) -> None:
        """There is no setting by which the client would skip records that no longer exist."""
        for prefix in ("", "main.consumer.", "producer."):
            assert f"'{prefix}auto.offset.reset'" in refusal(kafka={f"{prefix}auto.offset.reset": "latest"})
        assert input_settings(load(), "app")["auto.offset.reset"] == "error"

    def test_safe_values_are_accepted(self) -> None:
        load(kafka={"acks": "all", "isolation.level": "read_committed"}, spark={"spark.speculation": "false"})


@pytest.mark.security(18)
class TestReferences:
    @pytest.mark.parametrize(
        ("mode", "is_warned_of"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o666, True)]
    )
    def test_a_secret_file_readable_by_others_is_warned_about(
        self, mode: int, is_warned_of: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "password").write_text(f"{CANARY}\n")
        (tmp_path / "password").chmod(mode)
        with caplog.at_level(logging.WARNING):
            config = load(kafka={"sasl.password": f"file:{tmp_path / 'password'}"})
        assert config.kafka["sasl.password"] == CANARY
        assert ("chmod 600" in caplog.text) is is_warned_of
        assert "sasl.password" in caplog.text or not is_warned_of
        assert CANARY not in caplog.text

    @pytest.mark.parametrize("name", ["sasl.password", "producer.sasl.password"])
    def test_a_missing_variable_or_file_is_named(self, name: str) -> None:
        assert refusal(kafka={name: "env:NOT_THERE"}) == f"{name}: environment variable 'NOT_THERE' is not set."
        assert refusal(kafka={name: "file:not-there"}) == f"{name}: cannot read 'not-there': FileNotFoundError"
        assert refusal(admin_token="env:NOT_THERE").startswith("admin_token: ")

    def test_a_file_is_read_at_every_start(self, tmp_path: Path) -> None:
        """A changed secret applies from the next start: clients keep the one they were created with."""
        path = tmp_path / "password"
        for secret in ("old", "new"):
            path.write_text(secret)
            path.chmod(0o600)
            assert load(kafka={"sasl.password": f"file:{path}"}).kafka["sasl.password"] == secret


SECRET_NAMES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "main.consumer.ssl.keystore.key",
    "main.consumer.sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "main.consumer.basic.auth.user.info",
]


@pytest.mark.security(19)
class TestMasking:
    @pytest.fixture
    def config(self) -> Config:
        kafka = {name: f"{CANARY} {name}" for name in SECRET_NAMES}
        spark = {
            "spark.authenticate.secret": CANARY,
            "spark.proxy": f"https://ann:{CANARY}@host/",
            "spark.ssl.keyPassword": CANARY,
        }
        registry = {"url": "https://registry", "basic.auth.user.info": f"ann:{CANARY}", "ssl.key.password": CANARY}
        return load(kafka=kafka, spark=spark, schema_registry=registry, admin_token=CANARY, admin_read_token=CANARY)

    def shown(self, config: Config) -> Iterator[str | bytes]:
        yield from (repr(config), str(config), f"{config}", f"{config!s:>9}", "%s %r" % (config, config))  # noqa: UP031 - on purpose
        yield from (repr(asdict(config)), str(asdict(config)), repr(copy.copy(config)), repr(copy.deepcopy(config)))
        for found in (config.kafka, config.spark, config.schema_registry):
            yield from (repr(found), str(found), f"{found}", repr(dict(found)), repr(list(found.values())))
        for secret in [config.admin_token, config.admin_read_token, *(config.kafka[name] for name in SECRET_NAMES)]:
            yield from (repr(secret), str(secret), f"{secret}", f"{secret:<80}", f"{secret!r}", "%s" % secret)  # noqa: UP031
        yield from (pickle.dumps(config, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1))
        yield from (pickle.dumps(found) for found in (config.kafka, config.spark, config.schema_registry, config.admin_token))
        yield repr([getattr(config, field.name) for field in fields(config)])
        yield repr(consumer_settings(config, "app")) + repr(producer_settings(config))

    def test_secrets_are_hidden_however_they_are_printed(self, config: Config) -> None:
        assert canaries_in({"secret": CANARY}, *self.shown(config)) == []

    def test_the_search_finds_secrets_that_are_not_hidden(self, config: Config) -> None:
        assert canaries_in({"secret": CANARY}, repr(revealed(config.kafka))) == ["secret in text"]

    def test_secrets_are_hidden_in_errors(self, config: Config) -> None:
        error = RuntimeError("cannot start", config, config.kafka, config.admin_token)
        assert canaries_in({"secret": CANARY}, str(error), repr(error)) == []

    def test_secrets_are_hidden_in_logs(self, config: Config, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("x").warning("%s %r %s", config, config.kafka, config.admin_token)
        assert canaries_in({"secret": CANARY}, caplog.text) == []
        assert HIDDEN in caplog.text

    @pytest.mark.parametrize("ci", ["", "true"], ids=["at a desk", "in CI"])
    def test_secrets_are_hidden_in_failed_assertions(self, config: Config, ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", ci)  # pytest shows whole differences there
        for left, right in ((config, load()), (config.kafka, load().kafka), (asdict(config), asdict(load()))):
            with pytest.raises(AssertionError) as failure:
                assert left == right
            assert canaries_in({"secret": CANARY}, str(failure.value), repr(failure.value)) == []

    def test_a_copy_keeps_the_secrets(self, config: Config) -> None:
        assert copy.deepcopy(config) == copy.copy(config) == config
        changed = replace(config, lanes=2)
        again = load(kafka=config.kafka, spark=config.spark, admin_token=config.admin_token)
        for other in (changed, again):
            assert revealed(other.kafka) == revealed(config.kafka)
            assert revealed(other.spark) == revealed(config.spark)
            assert (other.admin_token, type(other.admin_token)) == (CANARY, Secret)
        assert asdict(config)["admin_token"] == CANARY
        assert pickle.loads(pickle.dumps(config)).admin_token == HIDDEN

    def test_clients_get_the_secrets_as_plain_text(self, config: Config) -> None:
        assert revealed(consumer_settings(config, "app"))["sasl.password"] == f"{CANARY} sasl.password"
        assert type(revealed(config.kafka)["sasl.password"]) is str


@pytest.mark.security(21)
class TestJaas:
    """There is no Java client that could be made to load a login module, and run its code."""

    @pytest.mark.parametrize(
        "module", ["com.sun.security.auth.module.JndiLoginModule", "org.apache.kafka.common.security.plain.PlainLoginModule"]
    )
    @pytest.mark.parametrize("prefix", ["", "main.consumer."])
    def test_a_login_module_is_refused_and_not_repeated(self, prefix: str, module: str) -> None:
        jaas = f'{module} required user.provider.url="ldap://attacker" secret="{CANARY}";'
        with pytest.raises(ConfigError, match="Java JAAS configuration is not supported") as error:
            open_consumer(input_settings(load(kafka={f"{prefix}sasl.jaas.config": jaas}), "app"))
        assert CANARY not in str(error.value)
        assert "attacker" not in str(error.value)


@pytest.mark.security(22)
class TestOAuth:
    NAME = "sasl.oauthbearer.token.endpoint.url"

    @pytest.mark.parametrize("prefix", ["", "main.consumer.", "producer."])
    @pytest.mark.parametrize(
        "url",
        [
            "http://issuer/token",
            "file:/etc/passwd",
            "file:///etc/passwd",
            "ftp://issuer/",
            "https:",
            "https:///token",
            "issuer/token",
            "",
            "https://ann:s3cr3t@issuer/",
            "https://a,https://b",
            "https://a b/",
            "https://[x/",
        ],
    )
    def test_tokens_are_requested_over_https_only(self, prefix: str, url: str, tmp_path: Path) -> None:
        (tmp_path / "url").write_text(url)
        said = refusal(kafka={prefix + self.NAME: f"file:{tmp_path / 'url'}"})
        assert said == f"kafka: '{prefix}{self.NAME}' must be an https:// URL without a password."


@pytest.mark.security(23)
class TestTransport:
    @pytest.mark.parametrize("prefix", ["", "producer.", "main.consumer.", "restore.consumer."])
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ssl.endpoint.identification.algorithm", ""),
            ("ssl.endpoint.identification.algorithm", "none"),
            ("enable.ssl.certificate.verification", "false"),
            ("enable.ssl.certificate.verification", "0"),
        ],
    )
    def test_verification_of_brokers_cannot_be_turned_off(self, prefix: str, name: str, value: str) -> None:
        assert f"'{prefix}{name}' must be" in refusal(kafka={prefix + name: value})

    @pytest.mark.parametrize(("protocol", "is_warned_of"), [("sasl_plaintext", True), ("SASL_SSL", False), ("SSL", False)])
    def test_a_login_without_encryption_is_warned_about(
        self, protocol: str, is_warned_of: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        load(kafka={"security.protocol": protocol})
        assert ("use SASL_SSL" in caplog.text) is is_warned_of


@pytest.mark.security(24)
class TestSpark:
    def test_nothing_of_spark_is_open_by_default(self) -> None:
        settings = context_settings(2, {})
        assert (settings["spark.ui.enabled"], settings["spark.eventLog.enabled"]) == ("false", "false")
        assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
        assert settings["spark.python.unix.domain.socket.enabled"] == "true"

    @pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
    def test_other_machines_must_authenticate(self, master: str) -> None:
        settings = context_settings(2, {"master": master})
        assert (settings["spark.authenticate"], settings["spark.network.crypto.enabled"]) == ("true", "true")
        assert context_settings(2, {"master": master, "spark.authenticate": "false"})["spark.authenticate"] == "false"

    @pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
    def test_threads_of_one_process_need_no_authentication(self, master: str) -> None:
        assert "spark.authenticate" not in context_settings(2, {"master": master})

    def test_there_are_no_jars_but_a_users_own(self) -> None:
        assert "spark.jars" not in context_settings(2, {})
        assert context_settings(2, {"spark.jars": "/x.jar"})["spark.jars"] == "/x.jar"
