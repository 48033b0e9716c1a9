"""The number of lanes changes while an application runs: nothing is lost or counted twice, and stores keep their content."""

from __future__ import annotations

from collections import Counter
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

PATIENCE_S = 90.0
KEYS = 40


def counting(source: str, out: str) -> App:
    builder = StreamsBuilder()
    builder.stream(source, value=str).group_by_key().count(store="counts").to_stream().to(out, value=int)
    return App(f"{source}-that-change", builder.build())


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.slow)])  # lanes change three times
def test_lanes_that_change(broker: Broker, tmp_path: Path, engine: str) -> None:
    servers = broker.bootstrap_servers
    source, out = f"lanes-{engine}-in", f"lanes-{engine}-out"
    for name in (source, out):
        topics.create(servers, name, partitions=3)
    settings = {
        **settings_of_a_case(servers, tmp_path),
        "engine": engine,
        "admin_address": "127.0.0.1:0",
        "lanes": 1,
        "shards": 8,
    }
    expected: Counter[bytes] = Counter()
    with counting(source, out).start(**settings) as running:
        assert running.wait_until_running(PATIENCE_S)
        for lanes in (3, 2, 8):
            sent = [Sent(key=b"k%d" % (number % KEYS), value=b"v") for number in range(200)]
            topics.produce(servers, source, sent)
            expected.update(record.key for record in sent if record.key is not None)
            found = CliRunner().invoke(commands, ["lanes", str(lanes), "--admin", str(running.admin_url)])
            assert found.exit_code == 0, found.output
            assert f"is running with {lanes} of at most 8 lanes" in found.output
        total = sum(expected.values())
        wait_until("all records", lambda: sum(count for _, count in running.store("counts").items()) == total, PATIENCE_S)
    assert running.wait(PATIENCE_S)
    last = {record.key: int.from_bytes(record.value or b"", "big") for record in topics.read(servers, out)}
    assert last == dict(expected)
