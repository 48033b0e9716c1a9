"""A table and a stream that are older than the application, on a real broker: every record finds the row that precedes it."""

from __future__ import annotations

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
    app.run(until="latest"{settings})
"""


@pytest.mark.parametrize(
    ("engine", "settings"),
    [("workers", ", max_epoch_records=1_500"), ("spark", ", max_epoch_records=1_500, worker_epoch_records=0")],
)
def test_every_order_finds_its_user(broker: Broker, tmp_path: Path, engine: str, settings: str) -> None:
    servers, name = broker.bootstrap_servers, f"time-order-{engine}"
    for topic in ("users", "orders", "out"):
        topics.create(servers, f"{name}-{topic}", partitions=2)
    orders = [Sent(key=b"u%d" % (at % USERS), value=b"%d" % at, timestamp=START_MS + at) for at in range(ORDERS)]
    users = [Sent(key=b"u%d" % at, value=b"name%d" % at, timestamp=START_MS - DAY_MS + at) for at in range(USERS)]
    topics.produce(servers, f"{name}-orders", orders)
    topics.produce(servers, f"{name}-users", users)
    path = tmp_path / f"{name}.py"
    path.write_text(APP.format(name=name, settings=settings), encoding="utf-8")

    code, log = run(path, broker)

    assert code == 0, log
    found = sorted((record.value or b"").decode() for record in topics.read(servers, f"{name}-out"))
    assert found == sorted(f"{at} name{at % USERS}" for at in range(ORDERS))
