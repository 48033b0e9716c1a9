"""The settings of Spark and the number of slots, as far as they can be told without starting it."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.spark import context as module
from penstock.spark.context import Spark, context_settings, open_context, slots_of
from penstock.spark.encryption import secured
from tests.unit.deploy.files import STANDALONE

CLUSTER = {"master": "spark://host:7077", "spark.authenticate.secret": "s"}


class TestSlots:
    @pytest.fixture(autouse=True)
    def _four_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 4)

    @pytest.mark.parametrize(
        ("settings", "lanes", "slots"),
        [
            ({}, 8, 4),
            ({}, 3, 3),
            ({"master": "local"}, 8, 1),
            ({"master": "local[2]"}, 8, 2),
            ({"master": "local[6]"}, 8, 6),
            ({"master": "local[6]"}, 5, 5),
            ({"master": "local[*]"}, 8, 4),
            ({"master": "local[3,9]"}, 8, 3),
            ({"master": "local[*, 2]"}, 8, 4),
            ({"master": "local-cluster[2,1,1024]"}, 8, 1),
        ],
    )
    def test_there_is_one_per_lane_but_no_more_than_cores(self, settings: dict[str, str], lanes: int, slots: int) -> None:
        assert slots_of(lanes, settings) == slots

    def test_a_machine_that_does_not_tell_its_cores_has_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert slots_of(8, {}) == 1

    @pytest.mark.parametrize(
        ("cores", "is_ours", "lanes", "slots"),
        [("6,8", True, 8, 4), ("6,8", True, 3, 3), ("6", False, 8, 5), ("2", False, 8, 1), ("*", False, 8, 6)],
    )
    def test_a_context_that_is_open_keeps_slots_for_other_jobs(self, cores: str, is_ours: bool, lanes: int, slots: int) -> None:
        assert slots_of(lanes, {"master": "local[9]"}, opened(f"local[{cores}]", is_ours)) == slots

    def test_a_context_with_a_single_slot_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r'has a single slot, .* Open it with two or more, .* master\("local\[2\]"\)'):
            slots_of(8, {}, opened("local", is_ours=False))


def opened(master: str, is_ours: bool) -> Any:
    """A context with a master on this machine, whose JVM counts seven cores; what jobs do by default is another matter."""
    names = {"spark.penstock.context"} if is_ours else set()
    runtime = SimpleNamespace(availableProcessors=lambda: 7)
    return SimpleNamespace(
        master=master,
        defaultParallelism=64,
        _jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime)))),
        getConf=lambda: SimpleNamespace(contains=names.__contains__),
        stop=lambda: None,
    )


class TestOpening:
    @pytest.fixture
    def context(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """What is opened; it counts how often it is stopped."""
        made = opened("local[6]", is_ours=True)
        made.stopped, made.arguments = [], []

        def open_context(*arguments: Any) -> Any:
            made.arguments.append(arguments)
            return made

        made.stop = lambda: made.stopped.append(1)
        monkeypatch.setattr(module, "require_java_of_spark", lambda: None)
        monkeypatch.setattr(module, "open_context", open_context)
        return made

    def test_it_is_opened_once_in_the_background(self, context: Any) -> None:
        spark = Spark("app", 3, {"master": "local[2]"})
        assert not spark.is_open
        assert spark.open() is spark.open()
        assert spark.open().result() is context
        assert spark.is_open
        assert [arguments[:3] for arguments in context.arguments] == [("app", 3, {"master": "local[2]"})]
        assert spark.slots(3) == 2
        spark.close()
        assert context.stopped == [1]

    def test_that_of_somebody_else_lives_on(self, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "has_context", lambda: True)
        spark = Spark("app", 3, {"master": "local[9]"})
        spark.open().result()
        context.master = "local[4]"
        assert spark.is_shared
        assert spark.slots(9) == 2
        spark.close()
        assert context.stopped == []

    def test_one_that_was_never_opened_can_be_closed(self, context: Any) -> None:
        Spark("app", 3, {}).close()
        assert (context.arguments, context.stopped) == ([], [])

    def test_a_missing_java_is_an_error_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing() -> None:
            raise ConfigError("no Java")

        monkeypatch.setattr(module, "require_java_of_spark", missing)
        monkeypatch.setattr(SparkContext, "_gateway", None)
        with pytest.raises(ConfigError, match="no Java"):
            Spark("app", 3, {}).open()

    def test_one_that_cannot_be_opened_is_not_open(self, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> Any:
            raise ConfigError("no master")

        monkeypatch.setattr(module, "open_context", refuse)
        spark = Spark("app", 3, {})
        with pytest.raises(ConfigError, match="no master"):
            spark.open().result()
        assert not spark.is_open
        spark.close()


class TestTheMasterOfSomebodyElse:
    """Lanes are hosted differently on a cluster, which the settings have to say."""

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`open_context` sets variables for workers."""
        for name in ("PYSPARK_PYTHON", "PYTHONPATH", "SPARK_LOCAL_IP"):
            monkeypatch.setenv(name, "")

    @pytest.mark.parametrize(
        ("master", "settings"),
        [("spark://host:7077", {}), ("yarn", {"master": "local[3]"}), ("local[4]", CLUSTER), ("local-cluster[2,1,1024]", {})],
    )
    def test_that_of_a_context_must_be_of_the_same_kind(
        self, master: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: SimpleNamespace(master=master))
        with pytest.raises(ConfigError, match=re.escape(f"The existing Spark context has the master {master}, but")) as refused:
            open_context("app", 2, settings)
        assert f"Set master to {master!r} in the table spark" in str(refused.value)

    @pytest.mark.parametrize(("master", "settings"), [("local[4]", {}), ("local[*]", {"master": "local[3]"}), ("yarn", CLUSTER)])
    def test_one_of_the_same_kind_will_do(self, master: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        conf = secured({}) if settings is CLUSTER else {}
        there = SimpleNamespace(master=master, getConf=lambda: SimpleNamespace(get=conf.get), setLogLevel=lambda _: None)
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: there)
        opened: Any = open_context("app", 2, settings)
        assert opened is there

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("spark.speculation", "TRUE", "must be 'false': only one task may write"),
            ("spark.python.worker.killOnIdleTimeout", "true", "must be 'false': the tasks in which lanes run send nothing"),
            ("spark.executor.pyspark.memory", "2g", "cannot be set: stores are mapped into memory"),
            ("spark.task.cpus", "2", "must be '1': each slot counts as a core"),
        ],
    )
    @pytest.mark.parametrize("is_open", [True, False])
    def test_settings_with_which_lanes_cannot_run_are_refused_wherever_they_come_from(
        self, name: str, value: str, said: str, is_open: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From a session of somebody's, or of `spark-defaults.conf`; a context of our own does not stay."""
        stopped: list[int] = []
        conf = SimpleNamespace(get=lambda asked, otherwise: value if asked == name else otherwise)
        there = SimpleNamespace(master="local[4]", getConf=lambda: conf, stop=lambda: stopped.append(1))
        monkeypatch.setattr(module, "has_context", lambda: is_open)
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: there)
        with pytest.raises(ConfigError, match=rf"^The Spark context: '{name}' {said}.* Change that in spark-defaults\.conf"):
            open_context("app", 2, {})
        assert len(stopped) == (not is_open)

    def test_all_that_does_not_fit_is_named_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        conf = {"spark.task.cpus": "2", "spark.speculation": "true"}
        there = SimpleNamespace(master="local[4]", getConf=lambda: SimpleNamespace(get=conf.get))
        monkeypatch.setattr(module, "has_context", lambda: True)
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: there)
        with pytest.raises(ConfigError, match=r"'spark\.speculation' must be 'false'.*; 'spark\.task\.cpus' must be '1'"):
            open_context("app", 2, {})

    @pytest.mark.parametrize("is_open", [True, False])
    def test_settings_that_it_does_not_have_are_named_without_secrets(
        self, is_open: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        conf = {**secured({}), "spark.executor.memory": "1g", "spark.network.timeout": "30s"}
        there = SimpleNamespace(master="yarn", getConf=lambda: SimpleNamespace(get=conf.get), setLogLevel=lambda _: None)
        monkeypatch.setattr(module, "has_context", lambda: is_open)
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: there)
        open_context("app", 2, {"master": "yarn", "spark.executor.memory": "4g", "spark.hadoop.fs.s3a.secret.key": "hunter2"})
        assert ("the Spark context was open already, and keeps its settings" in caplog.text) == is_open
        assert ("spark.executor.memory is 1g, not 4g" in caplog.text) == is_open
        assert ("spark.task.maxFailures is not set, not 8" in caplog.text) == is_open
        assert ("spark.hadoop.fs.s3a.secret.key" in caplog.text) == is_open
        assert "hunter2" not in caplog.text
        assert "spark.network.timeout is" not in caplog.text

    @pytest.mark.parametrize("name", ["SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"])
    def test_a_client_of_spark_connect_is_refused_with_the_reason(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "sc://host:15002")
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: pytest.fail("Spark was opened"))
        for use in (Spark("app", 2, {}).open, lambda: open_context("app", 2, {})):
            with pytest.raises(
                ConfigError, match=r"^Lanes cannot run on Spark Connect: .* Start the application in a process of"
            ):
                use()

    @pytest.mark.security(24)
    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"spark.authenticate": "false"}, ["spark.authenticate is false, not true"]),
            ({"spark.network.crypto.enabled": "false"}, ["spark.network.crypto.enabled is false, not true"]),
            (
                dict.fromkeys(("spark.network.crypto.cipher", "spark.network.crypto.saslFallback")),
                ["spark.network.crypto.cipher is AES/CTR/NoPadding, not AES/GCM/NoPadding", "saslFallback is true, not false"],
            ),
            ({"spark.io.encryption.enabled": None}, ["spark.io.encryption.enabled is false, not true"]),
        ],
    )
    def test_one_that_is_weaker_than_the_application_demands_is_refused_with_all_differences(
        self, changed: dict[str, str | None], said: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf = {name: value for name, value in {**secured({}), **changed}.items() if value is not None}
        there = SimpleNamespace(master="yarn", getConf=lambda: SimpleNamespace(get=conf.get), setLogLevel=lambda _: None)
        monkeypatch.setattr(module, "has_context", lambda: True)
        monkeypatch.setattr(SparkContext, "_gateway", object())
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: there)
        settings = {"master": "yarn"}
        with pytest.raises(ConfigError, match=r"^The Spark context is weaker than the application demands: ") as refused:
            open_context("app", 2, settings)
        assert all(each in str(refused.value) for each in said)
        assert str(refused.value).count(", not ") == len(said)
        weaker = {name: value or "false" for name, value in changed.items() if "cipher" not in name and "sasl" not in name}
        if weaker:  # who says so has it
            open_context("app", 2, {**settings, **weaker})

    @pytest.mark.parametrize(("is_submitted", "is_refused"), [(True, True), (False, False)])
    def test_that_of_spark_submit_is_not_replaced_by_another_in_silence(
        self, is_submitted: bool, is_refused: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system = SimpleNamespace(getProperty={"spark.master": "yarn"}.get)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        monkeypatch.setattr(SparkContext, "_gateway", None)
        monkeypatch.setattr(SparkContext, "_jvm", None)
        monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda **_: setattr(SparkContext, "_jvm", jvm))
        monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: SimpleNamespace(master="yarn"))
        monkeypatch.setattr(module, "require_java_of_spark", lambda: None)
        if is_submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        else:
            monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        with pytest.raises(ConfigError, match="^spark-submit" if is_refused else "^The existing"):
            open_context("app", 2, {})


def test_spark_does_not_limit_the_rows_of_a_query_unless_configured() -> None:
    assert context_settings(2, {})["spark.driver.maxResultSize"] == "0"
    assert context_settings(2, {"spark.driver.maxResultSize": "2g"})["spark.driver.maxResultSize"] == "2g"


def test_only_one_machine_is_bound_to_loopback() -> None:
    assert context_settings(2, {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in context_settings(2, CLUSTER)


def test_jobs_beside_the_lanes_share_what_is_left() -> None:
    assert context_settings(2, {})["spark.scheduler.mode"] == "FAIR"
    assert context_settings(7, {})["spark.sql.shuffle.partitions"] == "7"


def test_a_jvm_that_reads_no_frames_starts_quickly_unless_configured() -> None:
    name = "spark.driver.extraJavaOptions"
    assert context_settings(2, {}, True)[name] == "-XX:+UseParallelGC"
    assert "-XX:+UseSerialGC" in context_settings(2, {}, False)[name]
    assert context_settings(2, {name: "-Xss4m"}, False)[name] == "-Xss4m"


def test_a_cluster_authenticates_and_lets_tasks_be_lost_more_often() -> None:
    found = context_settings(2, CLUSTER)
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert (found["spark.network.crypto.cipher"], found["spark.network.crypto.authEngineVersion"]) == ("AES/GCM/NoPadding", "2")
    assert (found["spark.network.crypto.saslFallback"], found["spark.io.encryption.enabled"]) == ("false", "true")
    assert found["spark.task.maxFailures"] == "8"
    assert context_settings(2, {**CLUSTER, "spark.network.timeout": "9s"})["spark.network.timeout"] == "9s"


@pytest.mark.security(24)
def test_a_cluster_may_be_open_or_have_tls_of_its_own() -> None:
    given = {"master": "yarn", "spark.authenticate": "false"}
    assert not secured({}).keys() & (context_settings(2, given).keys() - given.keys())  # Spark refuses encryption without it
    of_tls = context_settings(2, {"master": "yarn", "spark.ssl.rpc.enabled": "true"})
    assert (of_tls["spark.authenticate"], of_tls["spark.io.encryption.enabled"]) == ("true", "true")
    assert not any(name.startswith("spark.network.crypto.") for name in of_tls)


@pytest.mark.security(24)
def test_masters_and_workers_of_deploy_have_the_same_encryption() -> None:
    written = (STANDALONE / "spark.conf.example").read_text(encoding="utf-8")
    for name, value in secured({}).items():
        assert (
            re.search(rf"^{re.escape(name)} +{re.escape(value)}$", written, re.MULTILINE) or name == "spark.io.encryption.enabled"
        )


BROKER = {"bootstrap.servers": "host:9092"}


class TestWhatAClusterNeeds:
    def test_its_secret_unless_it_is_open_to_everyone(self) -> None:
        with pytest.raises(ConfigError, match=r"'spark.authenticate.secret' is missing"):
            Config(kafka=BROKER, spark={"master": "spark://host:7077"}, lanes=2)
        Config(kafka=BROKER, spark={"master": "spark://host:7077", "spark.authenticate": "false"}, lanes=2)
        Config(kafka=BROKER, spark={"master": "yarn"}, lanes=2)

    def test_a_number_of_lanes(self) -> None:
        with pytest.raises(ConfigError, match=r"lanes: not set\. On a cluster"):
            Config(kafka=BROKER, spark=CLUSTER)

    @pytest.mark.parametrize(
        "name", ["spark.speculation", "spark.python.worker.killOnIdleTimeout", "spark.executor.pyspark.memory", "spark.task.cpus"]
    )
    @pytest.mark.parametrize("spark", [{}, CLUSTER])
    def test_what_would_end_slots_cannot_be_set(self, name: str, spark: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match=rf"^spark: '{name}' (must be|cannot be set).* Remove what is named\.$"):
            Config(kafka=BROKER, spark={**spark, name: "3"}, lanes=2)

    @pytest.mark.parametrize("spark", [{"spark.remote": "sc://host"}, {"master": "sc://host:15002"}])
    def test_spark_connect_cannot_be_asked_for(self, spark: dict[str, str]) -> None:
        with pytest.raises(
            ConfigError, match=r"^spark: Lanes cannot run on Spark Connect: .*\. Set master to that of the cluster\.$"
        ):
            Config(kafka=BROKER, spark=spark, lanes=2)

    @pytest.mark.parametrize("name", ["spark.task.maxFailures", "spark.locality.wait", "spark.sql.shuffle.partitions"])
    def test_what_lanes_do_not_depend_on_may_be_set(self, name: str) -> None:
        config = Config(kafka=BROKER, spark={**CLUSTER, name: "3"}, lanes=2)
        assert context_settings(2, config.spark)[name] == "3"
