"""The command line on a real broker: it runs, watches, resets (and when it refuses to), and finds what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from penstock import App, StreamsBuilder
from penstock.cli.commands import commands
from penstock.config import Config
from penstock.errors import FencedError, StateError
from penstock.kafka.reset import Fence
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port, wait_until

pytestmark = pytest.mark.jvm


class Case:
    """A separate application that counts."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.id = f"reset-{uuid4().hex[:8]}"
        self.directory = directory
        topics.create(self.servers, f"{self.id}-in", partitions=2)
        self.source = directory / f"{self.id.replace('-', '_')}.py"
        self.source.write_text(
            "from penstock import App, StreamsBuilder\n"
            "builder = StreamsBuilder()\n"
            f"builder.stream('{self.id}-in', value=str).group_by_key().count(store='counts')\n"
            f"app = App('{self.id}', builder.build())\n"
        )

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of_a_case(self.servers, self.directory)

    @property
    def config(self) -> Config:
        return Config.load(environment={}, **self.settings)

    def app(self) -> App:
        builder = StreamsBuilder()
        builder.stream(f"{self.id}-in", value=str).group_by_key().count(store="counts")
        return App(self.id, builder.build())

    def send(self, records: int) -> None:
        topics.produce(self.servers, f"{self.id}-in", [topics.Sent(key=b"k", value=b"v") for _ in range(records)])

    def run(self) -> None:
        with self.app().start(until="latest", **self.settings) as running:
            assert running.wait(120)

    def arguments(self, command: str, *more: str) -> list[str]:
        return [
            command,
            *("--set", f"bootstrap_servers={self.servers}"),
            *("--set", f"state_dir={self.directory / 'state'}"),
            *("--set", "shards=4"),
            *more,
        ]

    def call(self, *arguments: str) -> Result:
        given = [*arguments] if "--admin" in arguments else self.arguments(*arguments)
        return CliRunner().invoke(commands, given, env={"COLUMNS": "200"})

    @property
    def offsets(self) -> dict[tuple[str, int], tuple[int, str]]:
        return topics.group_offsets(self.servers, self.id)

    @property
    def internal(self) -> set[str]:
        return {name for name in topics.names(self.servers) if name.startswith(self.id) and name.endswith("-changelog")}

    @property
    def count(self) -> int:
        rows = topics.read(self.servers, f"{self.id}-counts-changelog")
        return int.from_bytes((rows[-1].value or b"")[-8:], "big")


@pytest.fixture
def case(broker: Broker, tmp_path: Path) -> Case:
    return Case(broker, tmp_path)


@pytest.mark.usefixtures("spark")
def test_it_runs_and_is_watched(case: Case) -> None:
    """`penstock query` with SQL needs Spark."""
    case.send(3)
    own = ("lanes=2", "admin_address=off", "engine=local")
    run = case.arguments("run", str(case.source), "--until", "latest", *(part for each in own for part in ("--set", each)))
    done = subprocess.run([sys.executable, "-m", "penstock.cli", *run], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert case.count == 3
    port = free_port()
    with case.app().start(**{**case.settings, "engine": "spark", "admin_address": f"127.0.0.1:{port}"}) as running:
        assert running.wait_until_running(120)
        case.send(1)
        wait_until("the next count", lambda: case.count == 4, 60)
        admin = ("--admin", f"http://127.0.0.1:{port}")
        one = case.call("query", "--store", "counts", "--key", "k", "--csv", *admin)
        rows = case.call("query", "select key, value from counts", "--csv", *admin)
        found = case.call("top", "--once", *admin)
    assert one.output.splitlines()[1].startswith("k,4,"), one.output
    assert rows.output == "key,value\nk,4\n"
    assert found.exit_code == 0, found.output
    assert f"{case.id}  running  epoch" in found.output
    assert "counts" in found.output


def test_everything_is_shown_first_and_deleted_only_if_confirmed(case: Case) -> None:
    case.send(3)
    case.run()
    shown = case.call("reset", "--application-id", case.id)
    assert shown.exit_code == 0, shown.output
    assert "Nothing was deleted" in shown.output
    assert all(name in shown.output for name in case.internal)
    assert case.offsets
    done = case.call("reset", "--application-id", case.id, "--yes")
    assert done.exit_code == 0, done.output
    assert not case.offsets
    assert not case.internal
    assert not (case.directory / "state" / case.id).exists()
    assert "nothing to reset" in case.call("reset", str(case.source)).output
    case.send(1)
    case.run()
    assert case.count == 4  # all of the topic, read again from its beginning


def test_a_running_application_is_left_alone(case: Case) -> None:
    case.send(1)
    with case.app().start(**case.settings) as running:
        assert running.wait_until_running(120)
        refused = case.call("reset", str(case.source), "--yes")
        assert refused.exit_code == 13, refused.output
        assert "is running on this machine" in refused.output
        case.send(1)
        running.stop()
        running.wait(60)
    assert case.offsets


def test_an_application_that_runs_elsewhere_is_detected_by_its_commits(case: Case) -> None:
    case.send(1)
    with case.app().start(**{**case.settings, "state_dir": case.directory / "elsewhere"}) as running:
        assert running.wait_until_running(120)
        stop = threading.Event()

        def busy() -> None:
            while not stop.wait(0.2):
                case.send(1)

        thread = threading.Thread(target=busy)
        thread.start()
        refused = case.call("reset", str(case.source), "--yes")
        stop.set()
        thread.join()
        assert refused.exit_code == 13, refused.output
        assert "it has committed within the last" in refused.output
        assert case.internal


@pytest.mark.parametrize("point", ["reset.offsets", pytest.param("reset.changelogs", marks=pytest.mark.slow)])  # several starts
def test_an_interrupted_reset_prevents_a_start_until_another_completes_it(case: Case, point: str) -> None:
    case.send(2)
    case.run()
    environment = {**os.environ, "PENSTOCK_FAULT": f"{point}:1:kill", "PENSTOCK_FAULT_DIR": str(case.directory / "faults")}
    command = [sys.executable, "-m", "penstock.cli", *case.arguments("reset", "--application-id", case.id, "--yes")]
    assert subprocess.run(command, env=environment, check=False, cwd=case.directory).returncode == -9
    assert not case.offsets
    with pytest.raises(StateError, match="no committed offsets, but its changelogs are not empty"):
        case.run()
    assert case.call("plan", str(case.source)).exit_code == 4
    done = case.call("reset", "--application-id", case.id, "--yes")
    assert done.exit_code == 0, done.output
    case.run()
    assert case.count == 2


def test_a_start_during_a_reset_is_detected(case: Case) -> None:
    case.send(1)
    case.run()
    lanes = f"{case.id}-lanes-changelog"
    with Fence(case.config, case.id, lanes) as fence:
        fence.prove()
        case.send(1)
        case.run()
        with pytest.raises(FencedError, match="has started in the meantime"):
            fence.prove()


def test_a_foreign_group_is_not_touched(case: Case) -> None:
    group = f"stranger-{uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": case.servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(f"{case.id}-in", 0, 0)], asynchronous=False)
    consumer.close()
    refused = case.call("reset", "--application-id", group, "--yes")
    assert refused.exit_code == 2, refused.output
    assert "does not belong to a Penstock application" in refused.output
    assert topics.group_offsets(case.servers, group)


class TestDoctor:
    def findings(self, case: Case, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
        done = case.call("doctor", *arguments, "--json")
        return done.exit_code, {finding["what"]: finding for finding in json.loads(done.output)}

    def test_one_that_can_run(self, case: Case) -> None:
        code, found = self.findings(case, str(case.source))
        assert code == 0, found
        assert {what: found[what]["level"] for what in ("java", "brokers", "transactions", "topics", "rights")} == {
            "java": "ok",
            "brokers": "ok",
            "transactions": "ok",
            "topics": "ok",
            "rights": "ok",
        }
        assert found["replicas"]["level"] == "warn"  # there is one broker

    def test_each_problem_has_its_cure(self, case: Case) -> None:
        case.source.write_text(case.source.read_text().replace("-in'", "-missing'"))
        code, found = self.findings(case, str(case.source), "--set", "transaction_timeout=10h")
        assert code == 1
        assert f"{case.id}-missing" in found["topics"]["found"]
        assert (found["topics"]["level"], found["transaction timeout"]["level"]) == ("fail", "fail")
        assert "transaction.max.timeout.ms" in found["transaction timeout"]["cure"]

    def test_unreachable_brokers(self, case: Case) -> None:
        code, found = self.findings(case, "--set", "bootstrap_servers=127.0.0.1:1", "--set", "broker_timeout=2s")
        assert code == 1
        assert found["brokers"]["level"] == "fail"
