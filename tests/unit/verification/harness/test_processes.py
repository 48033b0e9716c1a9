"""Ports, Java's command line, and waiting with a timeout."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from verification.harness import processes
from verification.harness.broker import Broker, Cluster, replication
from verification.harness.processes import HarnessError, ended_by_sigterm, free_port, java, run_java, wait_until


def test_a_free_port_can_be_bound_and_is_not_ephemeral() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
    assert 20_000 <= port < 32_000


def test_missing_jars_name_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    monkeypatch.setattr(processes, "BROKER_JARS", tmp_path / ".parts" / "kafka")
    with pytest.raises(HarnessError, match=r"no Kafka in \.parts/kafka; run `make setup`"):
        java("kafka.Kafka")


def test_a_failed_tool_shows_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: subprocess.CompletedProcess[str] = subprocess.CompletedProcess([], 3, stdout="out", stderr="err")
    monkeypatch.setattr(processes, "java", lambda *_, **__: ["java"])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(HarnessError, match=r"kafka\.Tool ended with 3:\nouterr"):
        run_java("kafka.Tool")


def test_a_timeout_names_what_was_awaited() -> None:
    answers = iter([False, False, True])
    wait_until("the third answer", lambda: next(answers), every_s=0)
    with pytest.raises(HarnessError, match=r"timed out after 0\.01 s: rain"):
        wait_until("rain", lambda: False, timeout_s=0.01, every_s=0)


def test_a_timeout_begins_again_with_every_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda seconds: None)  # other threads keep theirs
    monkeypatch.setattr(processes, "time", clock)
    steps = iter(range(100))
    answers = iter([False] * 50 + [True])
    wait_until("all steps", lambda: next(answers), timeout_s=10, every_s=0, progress=lambda: next(steps))
    with pytest.raises(HarnessError, match="timed out after 10 s: more"):
        wait_until("more", lambda: False, timeout_s=10, every_s=0, progress=lambda: "the same")


def test_a_broker_that_is_not_running_cannot_be_stopped() -> None:
    broker = Broker()
    try:
        for act in (broker.stop, broker.kill, broker.pause, broker.resume):
            with pytest.raises(HarnessError, match="broker 1 is not running"):
                act()
    finally:
        broker.close()


def test_the_nodes_of_a_cluster_know_each_other() -> None:
    cluster = Cluster(3)
    try:
        properties = [broker._write_properties().read_text() for broker in cluster.brokers]
        voters = ",".join(broker.voter for broker in cluster.brokers)
        assert all(f"controller.quorum.voters={voters}\n" in text for text in properties)
        assert all("min.insync.replicas=2\n" in text for text in properties)
    finally:
        cluster.close()


def test_a_write_needs_a_majority_of_brokers() -> None:
    assert [replication(brokers)["min.insync.replicas"] for brokers in (1, 2, 3, 5)] == ["1", "2", "2", "3"]


def test_a_broker_listens_where_it_is_told() -> None:
    broker = Broker(port=19092)
    try:
        assert broker.bootstrap_servers == "127.0.0.1:19092"
        assert "advertised.listeners=DIRECT://127.0.0.1:19092\n" in broker._write_properties().read_text()
    finally:
        broker.close()


def test_the_second_listener_sends_clients_to_the_proxy() -> None:
    broker = Broker(proxied_port=29092, settings={"log.retention.ms": "1"})
    try:
        text = broker._write_properties().read_text()
        assert f"PROXIED://{broker.upstream}" in text
        assert "PROXIED://127.0.0.1:29092" in text
        assert "log.retention.ms=1\n" in text
    finally:
        broker.close()


def test_sigterm_ends_a_block_with_what_was_started_in_it() -> None:
    before, ended = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with ended_by_sigterm(), closing(SimpleNamespace(close=lambda: ended.append("child"))):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    with pytest.raises(SystemExit, match="143"):
        run()
    assert ended == ["child"]
    assert signal.getsignal(signal.SIGTERM) is before
