"""The statistics of the driver's Kafka clients as metrics: what tells a slow broker from a slow application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from penstock.kafka.statistics import ClientReport

_BY_BROKER = ["client", "broker"]


def families_of_clients(clients: Mapping[str, ClientReport]) -> Iterator[Metric]:
    """Return the metrics of these clients, by what each is for."""
    yield from _queues(clients)
    round_trip = SummaryMetricFamily(
        "penstock_kafka_client_rtt_seconds",
        "How long brokers took to answer in the last interval; a consumer's requests wait for records.",
    )
    throttle = GaugeMetricFamily(
        "penstock_kafka_client_throttle_seconds",
        "The longest time for which a broker has throttled a client in the last interval.",
        labels=_BY_BROKER,
    )
    requests = GaugeMetricFamily(
        "penstock_kafka_client_requests", "Requests that are not sent yet, or not answered.", labels=[*_BY_BROKER, "state"]
    )
    disconnects = CounterMetricFamily(
        "penstock_kafka_client_disconnects", "Connections to brokers that were lost.", labels=_BY_BROKER
    )
    for client, report in clients.items():
        for name, broker in report.connections().items():
            if broker.round_trip.cnt:
                for quantile, found in (("0.5", broker.round_trip.p50), ("0.99", broker.round_trip.p99)):
                    labels = {"client": client, "broker": name, "quantile": quantile}
                    round_trip.add_sample(round_trip.name, labels, found / 1e6)
            throttle.add_metric([client, name], broker.throttle.max / 1e3)
            requests.add_metric([client, name, "queued"], broker.queued_requests)
            requests.add_metric([client, name, "in_flight"], broker.requests_in_flight)
            disconnects.add_metric([client, name], broker.disconnects)
    yield from (round_trip, throttle, requests, disconnects)


def _queues(clients: Mapping[str, ClientReport]) -> Iterator[Metric]:
    records = GaugeMetricFamily(
        "penstock_kafka_client_queued_records",
        "Records that wait in a client: a producer's to be sent, a consumer's to be taken by the application.",
        labels=["client"],
    )
    size = GaugeMetricFamily("penstock_kafka_client_queued_bytes", "Bytes of those records.", labels=["client"])
    for client, report in clients.items():
        count, count_bytes = report.queued
        records.add_metric([client], count)
        size.add_metric([client], count_bytes)
    yield from (records, size)
