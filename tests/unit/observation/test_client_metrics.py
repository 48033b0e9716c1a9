"""The statistics of Kafka clients, as Prometheus sees them."""

from __future__ import annotations

import pytest

from penstock.observation import Recorder
from penstock.observation.metrics import Metrics
from tests.unit.observation.observed import PREFETCHED, statistics
from tests.unit.observation.test_metrics import names, samples, value

NAME = "penstock_kafka_client"


def test_connections_of_a_client(recorder: Recorder, metrics: Metrics) -> None:
    recorder.clients.of("producer")(statistics("TxnCoordinator"))
    broker = {"client": "producer", "broker": "1"}
    assert value(metrics, f"{NAME}_rtt_seconds", **broker, quantile="0.5") == 0.05
    assert value(metrics, f"{NAME}_rtt_seconds", **broker, quantile="0.99") == 0.25
    assert value(metrics, f"{NAME}_throttle_seconds", **broker) == 0.03
    assert value(metrics, f"{NAME}_requests", **broker, state="queued") == 2
    assert value(metrics, f"{NAME}_requests", **broker, state="in_flight") == 5
    assert value(metrics, f"{NAME}_disconnects_total", client="producer", broker="TxnCoordinator") == 4


def test_a_connection_without_requests_has_no_round_trip(recorder: Recorder, metrics: Metrics) -> None:
    """A round trip of 0 s would look like a fast broker."""
    recorder.clients.of("producer")(statistics("TxnCoordinator"))
    found = {dict(labels)["broker"] for name, labels in samples(metrics) if name == f"{NAME}_rtt_seconds"}
    assert found == {"1"}


def test_bootstrap_servers_are_no_brokers(recorder: Recorder, metrics: Metrics) -> None:
    recorder.clients.of("producer")(statistics("TxnCoordinator"))
    found = {dict(labels)["broker"] for name, labels in samples(metrics) if name == f"{NAME}_disconnects_total"}
    assert found == {"1", "TxnCoordinator"}


def test_queues_of_both_clients(recorder: Recorder, metrics: Metrics) -> None:
    recorder.clients.of("producer")(statistics("TxnCoordinator", msg_cnt=7, msg_size=900))
    recorder.clients.of("consumer")(statistics("GroupCoordinator", topics=PREFETCHED))
    for client, records, size in (("producer", 7, 900), ("consumer", 3, 60)):
        assert value(metrics, f"{NAME}_queued_records", client=client) == records
        assert value(metrics, f"{NAME}_queued_bytes", client=client) == size


def test_a_new_client_replaces_the_one_before_it(recorder: Recorder, metrics: Metrics) -> None:
    recorder.clients.of("producer")(statistics("TxnCoordinator", msg_cnt=7))
    recorder.clients.of("producer")(statistics("TxnCoordinator", msg_cnt=8))
    assert value(metrics, f"{NAME}_queued_records", client="producer") == 8


@pytest.mark.parametrize("text", ["", "{", '{"brokers": [1]}', '{"brokers": {"b": {"name": "b", "nodeid": "one"}}}'])
def test_without_statistics_that_can_be_read_there_are_no_metrics(recorder: Recorder, metrics: Metrics, text: str) -> None:
    """Nor does a scrape fail: all other metrics are there."""
    recorder.clients.of("producer")(text)
    assert not any(name.startswith(NAME) for name in names(metrics))
    assert "penstock_commits_total" in names(metrics)
