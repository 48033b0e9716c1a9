"""Inputs that are older than the application, on a real broker: epochs take their records in the order of time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.jvm.runtime.test_life_cycle import run
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

USERS, ORDERS = 4_000, 6_000
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000

APP = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
users = builder.table("{name}-users", key=str, value=str)
orders = builder.stream("{name}-orders", key=str, value=str)
orders.left_join(users, lambda order, user: f"{{order}} {{user}}").to("{name}-out", value=str)
app = App("{name}", builder.build())
if __name__ == "__main__":
    app.run(until="latest", max_epoch_records={most})
"""


def test_every_order_finds_its_user(broker: Broker, tmp_path: Path) -> None:
    servers, name = broker.bootstrap_servers, "time-order"
    for topic in ("users", "orders", "out"):
        topics.create(servers, f"{name}-{topic}", partitions=2)
    orders = [Sent(key=b"u%d" % (at % USERS), value=b"%d" % at, timestamp=START_MS + at) for at in range(ORDERS)]
    users = [Sent(key=b"u%d" % at, value=b"name%d" % at, timestamp=START_MS - DAY_MS + at) for at in range(USERS)]
    topics.produce(servers, f"{name}-orders", orders)
    topics.produce(servers, f"{name}-users", users)
    path = tmp_path / f"{name}.py"
    path.write_text(APP.format(name=name, most=1_500), encoding="utf-8")

    code, log = run(path, broker)

    assert code == 0, log
    found = sorted((record.value or b"").decode() for record in topics.read(servers, f"{name}-out"))
    assert found == sorted(f"{at} name{at % USERS}" for at in range(ORDERS))


WINDOWS = """
from penstock import App, StreamsBuilder, tumbling, until_window_closes

builder = StreamsBuilder()
windows = builder.stream("{name}-in", key=str, value=str).group_by_key().windowed_by(tumbling("10s", grace="0s"))
closed = windows.count().suppress(until_window_closes()).to_stream(lambda window, _: f"{{window.key}}@{{window.start}}")
closed.to("{name}-out", key=str, value=int)
app = App("{name}", builder.build())
if __name__ == "__main__":
    app.run(until="latest", max_epoch_records={most})
"""
KEYS, CLOSING = 7, 200


def test_no_partition_closes_the_windows_of_another(broker: Broker, tmp_path: Path) -> None:
    """One partition has an even load, and most records of the other are from its first minutes."""
    servers, name = broker.bootstrap_servers, "time-order-windows"
    for topic in ("in", "out"):
        topics.create(servers, f"{name}-{topic}", partitions=2)
    times = {0: range(0, 2_000_000, 1_000), 1: [*range(0, 180_000, 100), *range(180_000, 2_000_000, 9_100)]}
    sent, expected = list[Sent](), Counter[str]()
    for partition, own in times.items():
        for number, at in enumerate(own):
            key = f"p{partition}-{number % KEYS}"
            sent.append(Sent(key=key.encode(), value=b"v", timestamp=START_MS + at, partition=partition))
            expected[f"{key}@{START_MS + at - (START_MS + at) % 10_000}"] += 1
    last = [Sent(key=b"z%d" % at, value=b"v", timestamp=START_MS + DAY_MS, partition=at % 2) for at in range(CLOSING)]
    topics.produce(servers, f"{name}-in", [*sent, *last])
    path = tmp_path / f"{name}.py"
    path.write_text(WINDOWS.format(name=name, most=500), encoding="utf-8")

    code, log = run(path, broker)

    assert code == 0, log
    results = topics.read(servers, f"{name}-out")
    found = [((record.key or b"").decode(), int.from_bytes(record.value or b"", "big")) for record in results]
    assert sorted(found) == sorted(expected.items())
