"""`penstock doctor`: what is ok, what may hurt and what fails, each with a cure."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import doctor
from penstock.cli.broker_checks import limits, message_sizes, replicas, rights
from penstock.cli.doctor import _admin_port, _memory, _python, _state_directory, java_finding, print_findings
from penstock.cli.findings import Level, fail, ok, warn
from penstock.config import Config
from penstock.kafka.broker_facts import ClusterFacts, TopicFacts
from penstock.kafka.topics import Topic
from tests.unit.cli.calling import call

CONFIG = Config.load(environment={}, bootstrap_servers="b:1")
EVERYTHING = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"})


class TestMachine:
    @pytest.mark.parametrize(
        ("output", "level", "version"),
        [
            ('openjdk version "21.0.5" 2024-10-15', Level.OK, "21"),
            ('openjdk version "17" 2021-09-14', Level.OK, "17"),
            ('java version "1.8.0_402"', Level.FAIL, "8"),
            ('openjdk version "11.0.22"', Level.FAIL, "11"),
            ("Picked up JAVA_TOOL_OPTIONS", Level.WARN, "does not print"),
        ],
    )
    def test_java(self, output: str, level: Level, version: str) -> None:
        finding = java_finding(output, "java", "install it")
        assert finding.level is level
        assert version in finding.found

    def test_a_missing_java_fails(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert doctor._java(needs_spark=True).level is Level.FAIL
        assert doctor._java(needs_spark=False) == ok("java", "none; engine = local needs none")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "cannot be run: FileNotFoundError" in doctor._java(needs_spark=True).found

    @pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.7.dev0"])
    def test_spark_may_have_each_version_that_is_supported(self, version: str) -> None:
        found = _python(version, needs_spark=True)
        assert (found.level, found.found.partition(", ")[2]) == (Level.OK, f"pyspark {version}")

    @pytest.mark.parametrize("version", ["3.5.1", "4.1.2", "4.4.0", "5.0.0", "unknown"])
    def test_no_other_will_do(self, version: str) -> None:
        found = _python(version, needs_spark=True)
        assert (found.level, found.cure) == (Level.FAIL, "install pyspark>=4.2,<4.4")
        assert _python(version, needs_spark=False).level is Level.OK

    def test_the_local_engine_needs_none(self) -> None:
        assert _python(None, needs_spark=False).found.endswith(", without pyspark")
        found = _python(None, needs_spark=True)
        assert (found.level, found.cure) == (Level.FAIL, "install pyspark>=4.2,<4.4, or set engine = local")

    def test_executors_are_not_looked_at_without_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor, "pyspark_version", lambda: None)
        assert list(doctor._cluster(CONFIG)) == []

    def test_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "meminfo"
        assert not list(_memory(path))
        path.write_text("MemTotal: 9 kB\nMemAvailable:    4194304 kB\n")
        assert [finding.level for finding in _memory(path)] == [Level.OK]
        path.write_text("MemAvailable:    1048576 kB\n")
        assert [finding.level for finding in _memory(path)] == [Level.WARN]


class TestState:
    def test_a_directory_that_does_not_exist_yet_is_ok(self, tmp_path: Path) -> None:
        [writable, disk] = _state_directory(tmp_path / "a" / "b")
        assert writable.level is Level.OK
        assert disk.what == "disk"
        assert not (tmp_path / "a").exists()

    def test_a_directory_that_other_users_may_write_is_a_warning(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o777)
        finding = next(_state_directory(tmp_path))
        assert (finding.level, finding.cure) == (Level.WARN, f"chmod go-w {tmp_path}")

    def test_a_directory_that_cannot_be_written_fails(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("")
        [finding] = _state_directory(path)
        assert finding.level is Level.FAIL


class TestAdmin:
    def test_a_port_in_use_is_a_warning(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            [finding] = _admin_port(config(admin_address=f"127.0.0.1:{port}"))
        assert finding.level is Level.WARN
        [finding] = _admin_port(config(admin_address=f"127.0.0.1:{port}"))
        assert finding.level is Level.OK

    def test_an_admin_server_that_is_off_is_ok(self) -> None:
        assert [finding.found for finding in _admin_port(config(admin_address="off"))] == ["off"]


def config(**overrides: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="b:1", **overrides)


SETTINGS = {
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "offsets.retention.minutes": "10080",
}


class TestLimits:
    def levels(self, cluster: ClusterFacts, used: Config = CONFIG) -> dict[str, Level]:
        return {finding.what: finding.level for finding in limits(cluster, used)}

    def test_a_suitable_cluster_is_ok(self) -> None:
        assert set(self.levels(ClusterFacts(3, SETTINGS, None)).values()) == {Level.OK}

    def test_transactions_need_brokers(self) -> None:
        assert self.levels(ClusterFacts(2, SETTINGS, None))["transactions"] is Level.FAIL

    def test_a_transaction_timeout_above_the_brokers_maximum_fails(self) -> None:
        found = self.levels(ClusterFacts(3, SETTINGS, None), config(transaction_timeout="1h"))
        assert found["transaction timeout"] is Level.FAIL

    def test_offsets_that_expire_soon_are_a_warning(self) -> None:
        assert self.levels(ClusterFacts(3, {**SETTINGS, "offsets.retention.minutes": "60"}, None))["offsets"] is Level.WARN

    def test_at_least_once_needs_no_transactions(self) -> None:
        assert self.levels(ClusterFacts(1, SETTINGS, None), config(guarantee="at_least_once")) == {"offsets": Level.OK}

    def test_brokers_that_do_not_reveal_settings_are_a_warning(self) -> None:
        assert self.levels(ClusterFacts(3, {}, None)) == {"limits": Level.WARN}


class TestRights:
    def facts(self, **allowed: frozenset[str] | None) -> dict[str, TopicFacts]:
        return {name: TopicFacts(3, 3, rights) for name, rights in allowed.items()}

    def test_a_missing_permission_fails_with_the_topic(self) -> None:
        reads = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
        facts = self.facts(read=reads, written=reads, own=frozenset({"ALL"}))
        [finding] = rights(facts, ["read"], ["written"], ["own"])
        assert finding.level is Level.FAIL
        assert finding.found == "not allowed: written (WRITE)"

    def test_all_permissions_are_ok(self) -> None:
        assert [f.level for f in rights(self.facts(a=EVERYTHING, b=EVERYTHING), ["a"], ["b"], [])] == [Level.OK]

    def test_unknown_permissions_are_a_warning(self) -> None:
        assert [f.level for f in rights(self.facts(a=None), ["a"], [], [])] == [Level.WARN]


def topic(name: str, size: int) -> Topic:
    return Topic(name, "id", 1, {"max.message.bytes": str(size)})


class TestTopics:
    def test_outputs_must_accept_records_as_large_as_the_sources(self) -> None:
        found = {"a": topic("a", 2_000), "b": topic("b", 1_000)}
        assert message_sizes(found, ["a"], ["b"]).level is Level.WARN
        assert message_sizes(found, ["b"], ["a"]).level is Level.OK
        assert message_sizes({}, ["b"], ["a"]).level is Level.OK

    @pytest.mark.parametrize(
        ("replicated", "in_sync", "brokers", "factor", "level"),
        [
            (3, 3, 3, -1, Level.OK),
            (2, 2, 3, -1, Level.WARN),
            (3, 2, 3, -1, Level.WARN),
            (3, 3, 3, 1, Level.WARN),
            (1, 1, 1, -1, Level.WARN),
        ],
    )
    def test_replicas(self, replicated: int, in_sync: int, brokers: int, factor: int, level: Level) -> None:
        assert replicas({"t": TopicFacts(replicated, in_sync, None)}, brokers, factor).level is level


class TestReport:
    def test_a_failure_makes_the_exit_code_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_findings([ok("a", "well"), warn("b", "so so", "rest")], as_json=False) == 0
        assert print_findings([ok("a", "well"), fail("b", "bad", "fix it")], as_json=True) == 1
        out = capsys.readouterr().out
        assert "rest" in out
        assert json.loads(out.splitlines()[-1])[1] == {"what": "b", "level": "fail", "found": "bad", "cure": "fix it"}

    def test_invalid_settings_are_a_finding(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        found = call("doctor", "--json", "--set", "lanes=many")
        assert found.exit_code == 1
        settings = next(finding for finding in json.loads(found.output) if finding["what"] == "settings")
        assert settings["level"] == "fail"
        assert "lanes" in settings["found"]
