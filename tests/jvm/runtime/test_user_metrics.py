"""Metrics of processors in worker processes, and of the driver's Kafka clients, at `/metrics` of a real application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.jvm.runtime.test_life_cycle import START_S, started
from tests.jvm.runtime.test_prometheus import answers, exposed, value
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port, wait_until
from verification.harness.prometheus import promtool

pytestmark = pytest.mark.jvm

KEYS, RECORDS = 40, 400
PARITIES = ("even", "odd")

CHECKS = """
from penstock import App, Processor, StreamsBuilder, key_value_store

class Check(Processor):
    def init(self, context):
        super().init(context)
        self.last = context.store("last")
        self.seen = context.metrics.counter("orders_seen", "Orders that were seen.", labels=["parity"])
        self.amounts = context.metrics.histogram("order_amount", "Amounts of orders.", buckets=[100, 200])
        self.kept = context.metrics.gauge("orders_kept", "Orders that the shard keeps.")

    def process(self, record):
        amount = int(record.value)
        self.last[record.key] = record.value
        self.seen.labels(parity="odd" if amount % 2 else "even").inc()
        self.amounts.observe(amount)
        self.kept.set(sum(1 for _ in self.last.all()))

builder = StreamsBuilder()
builder.add_state_store(key_value_store("last", value=str))
builder.stream("NAME-in", value=str).process(Check, stores=["last"])
app = App("NAME", builder.build())

if __name__ == "__main__":
    app.run(engine="ENGINE", kafka={"statistics.interval.ms": "1000"})
"""


def fired(directory: Path) -> list[str]:
    path = directory / "fired"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


class Checked(NamedTuple):
    """An application that has run: its port, and the round trips seen by client and broker."""

    port: int
    round_trips: dict[tuple[str, str], float]


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.slow)])  # Spark starts for it
def checked(broker: Broker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Checked]:
    """An application two of whose workers were killed: one had processed its records, one had written them, too."""
    servers, port = broker.bootstrap_servers, free_port()
    directory = tmp_path_factory.mktemp("checked")
    name = f"checked-{request.param}"
    topics.create(servers, f"{name}-in", partitions=4)
    path, faults = directory / "checked.py", directory / "faults"
    path.write_text(CHECKS.replace("NAME", name).replace("ENGINE", request.param), encoding="utf-8")
    settings = {
        "PENSTOCK_ADMIN_ADDRESS": f"127.0.0.1:{port}",
        "PENSTOCK_FAULT": "lane.before_write:4:kill,lane.after_write:9:kill",
        "PENSTOCK_FAULT_DIR": str(faults),
    }
    found = Checked(port, {})
    with started(path, broker, **settings) as process:

        def has_counted(records: int) -> bool:
            assert process.poll() is None, path.with_suffix(".log").read_text()
            if not answers(port):
                return False
            found.round_trips.update(round_trips(exposed(port)))  # an idle client has none
            return value(port, "penstock_records_total") >= records

        sent = 0
        while sent < RECORDS or len(fired(faults)) < 2 or len(found.round_trips) < 3:
            assert sent < 100 * RECORDS, (fired(faults), found)
            amounts = range(sent, sent + RECORDS // 4)
            topics.produce(servers, f"{name}-in", [topics.Sent(key=b"k%d" % (i % KEYS), value=b"%d" % i) for i in amounts])
            sent = amounts.stop
            wait_until(f"{sent} records", partial(has_counted, sent), START_S)
        yield found


@pytest.fixture(scope="module")
def port(checked: Checked) -> int:
    return checked.port


def round_trips(text: str) -> dict[tuple[str, str], float]:
    pattern = r'^penstock_kafka_client_rtt_seconds\{broker="(\w+)",client="(\w+)",quantile="0.99"\} (\S+)$'
    return {(client, broker): float(seconds) for broker, client, seconds in re.findall(pattern, text, re.MULTILINE)}


def labelled(port: int, name: str) -> dict[str, float]:
    """The samples of a metric by their only label."""
    found = re.findall(rf'^{name}\{{\w+="([^"]*)"\}} (\S+)$', exposed(port), re.MULTILINE)
    return {label: float(number) for label, number in found}


def test_counts_are_exact_although_workers_were_killed(port: int) -> None:
    records = value(port, "penstock_records_total")
    assert labelled(port, "penstock_user_orders_seen_total") == dict.fromkeys(PARITIES, records / 2)
    assert value(port, "penstock_user_order_amount_count") == records
    assert value(port, "penstock_user_order_amount_sum") == records * (records - 1) / 2
    buckets = labelled(port, "penstock_user_order_amount_bucket")
    assert buckets == {"100.0": 101, "200.0": 201, "+Inf": records}


def test_every_shard_has_its_gauge(port: int) -> None:
    by_shard = labelled(port, "penstock_user_orders_kept")
    assert sum(by_shard.values()) == KEYS
    assert len(by_shard) > 1


def test_promtool_accepts_them(port: int) -> None:
    assert promtool("check", "metrics", given=exposed(port).encode()) == ""


def test_the_clients_tell_how_long_brokers_take(checked: Checked) -> None:
    assert {client for client, _ in checked.round_trips} == {"producer", "consumer"}
    assert {broker for _, broker in checked.round_trips} >= {"1", "TxnCoordinator"}
    assert all(0 < seconds < 10 for seconds in checked.round_trips.values())
