"""`python -m verification.sources`: files and then a topic, killed around the hand-over, compared with the topic alone.

Writes reports/sources.json and prints its figures.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from verification.chaos.application import Application
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker

COMMAND = (sys.executable, "-m", "verification.sources.app")
ORDERS, IN_FILES, CUSTOMERS = 120_000, 90_000, 500
FIRST_MS = 1_700_000_000_000
STORES = ("totals", "minutes")
PARTITIONS = 4
TIMEOUT_S = 180
FAULTS = (
    "backfill.before_commit:2",
    "backfill.after_commit:1",
    "backfill.before_commit:1",
    "backfill.after_commit:2",
    "backfill.complete:1",
    "kafka.after_init:1",
    "barrier.before_commit:1",
    "barrier.after_commit:1",
    "epoch.after_job:2",
    "lane.after_write:3",
)
"""Where it is killed, one after the other: while files are loaded, when all are, and in the first epochs."""


class Order(NamedTuple):
    """An order."""

    number: int
    customer: str
    amount: int
    at: int


def main(arguments: list[str] | None = None) -> int:
    """Run both applications and compare their tables; the exit code is 0 if they are equal and each fault has fired."""
    parser = argparse.ArgumentParser(prog="python -m verification.sources")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("reports/sources.json"))
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sources-") as directory, Broker(settings=NEVER_KILLED) as broker:
        orders = _orders(options.seed)
        place = Path(directory)
        expected = _from_topic(broker, place, orders)
        found, kills = _from_files(broker, place, orders)
    differences = {store: len(expected[store].items() ^ found[store].items()) for store in STORES}
    rows = {store: len(expected[store]) for store in STORES}
    report = {
        "orders": ORDERS,
        "in_files": IN_FILES,
        "kills": kills,
        "rows": rows,
        "differences": sum(differences.values()),
        "seconds": round(time.monotonic() - began),
    }
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))
    return 0 if not report["differences"] and kills == len(FAULTS) and all(rows.values()) else 1


def _orders(seed: int) -> list[Order]:
    chooser = random.Random(seed)
    return [
        Order(number, f"c{chooser.randrange(CUSTOMERS)}", chooser.randrange(1000), FIRST_MS + 10 * number)
        for number in range(ORDERS)
    ]


def _from_topic(broker: Broker, directory: Path, orders: list[Order]) -> dict[str, dict[bytes, bytes]]:
    """The tables if all orders are in the topic."""
    name = "from-topic"
    _create(broker, name)
    _produce(broker, name, orders)
    _application(broker, directory, name).run(TIMEOUT_S, SOURCES_UNTIL="latest")
    return _tables(broker, name)


def _from_files(broker: Broker, directory: Path, orders: list[Order]) -> tuple[dict[str, dict[bytes, bytes]], int]:
    """The tables if the earlier orders are in files, and how often the application was killed."""
    name, lake = "from-files", directory / "lake"
    _create(broker, name, "history")
    lake.mkdir()
    shuffled = random.Random(ORDERS).sample(orders[:IN_FILES], IN_FILES)
    for part in range(3):
        some = shuffled[part::3]
        columns = {field: [getattr(order, field) for order in some] for field in Order._fields}
        pq.write_table(pa.table(columns), lake / f"{part}.parquet")
    _produce(broker, name, orders[IN_FILES:])
    application = _application(broker, directory, name, SOURCES_FILES=str(lake))
    kills = 0
    for fault in FAULTS:
        kills += application.dies_at(fault, TIMEOUT_S)
    application.run(TIMEOUT_S, SOURCES_UNTIL="latest")
    application.close()
    return _tables(broker, name), kills


def _application(broker: Broker, directory: Path, name: str, **settings: str) -> Application:
    environment = {
        "SOURCES_NAME": name,
        "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PENSTOCK_STATE_DIR": str(directory / name / "state"),
        "PENSTOCK_ADMIN_ADDRESS": "127.0.0.1:0",
        "PENSTOCK_LANES": "2",
        "PENSTOCK_MAX_EPOCH_RECORDS": "20000",
        **settings,
    }
    return Application(directory / name, environment, COMMAND)


def _create(broker: Broker, name: str, *more: str) -> None:
    for topic in ("orders", "totals", *more):
        topics.create(broker.bootstrap_servers, f"{name}-{topic}", PARTITIONS)


def _produce(broker: Broker, name: str, orders: Iterable[Order]) -> None:
    sent = [
        topics.Sent(
            key=order.customer.encode(),
            value=json.dumps({"number": order.number, "amount": order.amount}).encode(),
            timestamp=order.at,
        )
        for order in orders
    ]
    topics.produce(broker.bootstrap_servers, f"{name}-orders", sent)


def _tables(broker: Broker, name: str) -> dict[str, dict[bytes, bytes]]:
    """The last value of each key in the changelogs."""
    found: dict[str, dict[bytes, bytes]] = {}
    for store in STORES:
        table: dict[bytes, bytes] = {}
        for record in topics.read(broker.bootstrap_servers, f"{name}-{store}-changelog"):
            assert record.key is not None
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        found[store] = table
    return found


if __name__ == "__main__":
    sys.exit(main())
