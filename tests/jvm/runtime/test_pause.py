"""A paused application on a real broker: it commits nothing, answers, is not replaced, and loses nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import App, StreamsBuilder
from penstock.cli.commands import commands
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

PATIENCE_S = 60.0


def counting() -> App:
    builder = StreamsBuilder()
    builder.stream("paused-in", value=str).group_by_key().count(store="counts").to_stream().to("paused-out", value=int)
    return App("paused", builder.build())


def lines(count: int) -> list[Sent]:
    return [Sent(key=b"k", value=b"v") for _ in range(count)]


def test_a_pause_by_the_command_line(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for name in ("paused-in", "paused-out"):
        topics.create(servers, name)
    settings = {**settings_of_a_case(servers, tmp_path), "admin_address": "127.0.0.1:0"}
    with counting().start(**settings) as running:
        topics.produce(servers, "paused-in", lines(10))
        wait_until("the first records", lambda: running.epoch >= 0 and running.store("counts").get("k") == 10, PATIENCE_S)

        def call(command: str) -> str:
            found = CliRunner().invoke(commands, [command, "--admin", str(running.admin_url)])
            assert found.exit_code == 0, found.output
            return found.output

        assert "paused is paused" in call("pause")
        epoch = running.epoch
        topics.produce(servers, "paused-in", lines(20))
        time.sleep(2.0)
        assert (running.epoch, running.store("counts")["k"], running.health.ready()) == (epoch, 10, ())
        assert "not paused" in call("resume")
        wait_until("the other records", lambda: running.store("counts")["k"] == 30, PATIENCE_S)
        call("pause")
    assert running.wait(PATIENCE_S)


def test_a_start_that_is_paused_commits_its_beginning_after_the_pause(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for name in ("paused-start-in", "paused-start-out"):
        topics.create(servers, name)
    builder = StreamsBuilder()
    builder.stream("paused-start-in", value=str).to("paused-start-out", value=str)
    with App("paused-start", builder.build()).start(**settings_of_a_case(servers, tmp_path)) as running:
        running.pause()
        assert running.wait_until_paused(PATIENCE_S)
        time.sleep(1.0)
        assert running.epoch == -1
        running.resume()
        wait_until("the first epoch, without records", lambda: running.epoch == 0, PATIENCE_S)
