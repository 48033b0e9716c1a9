"""An application that begins with files and delivers to PostgreSQL and to files, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jvm.runtime.test_life_cycle import ON_SPARK, run
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.postgres import Postgres
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

TABLE = "CREATE TABLE totals (customer text PRIMARY KEY, orders integer, sum integer)"

DELIVERING = """
from penstock import App, StreamsBuilder
from penstock.delivery import Files, Postgres

builder = StreamsBuilder()
orders = builder.stream("delivered-orders", key=str, value=int)
orders.map_values(lambda amount: {{"amount": amount}}).to("delivered-lines", deliver_to=Files({lake!r}))
totals = orders.group_by_key().aggregate(
    dict, lambda _, amount, total: {{"orders": total.get("orders", 0) + 1, "sum": total.get("sum", 0) + amount}}, store="totals"
)
totals.filter(lambda _, total: total["sum"] < 1000).to_stream().to(
    "delivered-totals", deliver_to=Postgres("env:DATABASE", "totals", key="customer")
)
app = App("delivering", builder.build())
if __name__ == "__main__":
    app.run(until="latest", engine="local", create_topics=True, topic_partitions=3)
"""

REFUSING = """
from penstock import App, StreamsBuilder, dead_letter
from penstock.delivery import Files

builder = StreamsBuilder()
builder.stream("refused-in", key=str, value=dict).to("refused-out", deliver_to=Files({lake!r}))
app = App("refusing", builder.build(), production_errors=dead_letter("refused-letters"))
if __name__ == "__main__":
    app.run(until="latest", engine="local", create_topics=True, topic_partitions=1)
"""

BACKFILLED = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
orders = builder.read(
    lambda spark: spark.read.parquet({lake!r}),
    lambda row: (row["customer"], row["amount"], row["at"]),
    order_by="id",
    history="backfilled-history",
    live="backfilled-orders",
    key=str,
    value=int,
)
orders.group_by_key().count(store="counts").to_stream().to("backfilled-counts", value=int)
app = App("backfilled", builder.build())
if __name__ == "__main__":
    app.run(until="latest", create_topics=True)
"""


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection[Any]]:
    with Postgres() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection


def orders(*amounts: tuple[str, int]) -> list[Sent]:
    return [Sent(key=customer.encode(), value=amount.to_bytes(8, "big")) for customer, amount in amounts]


def test_everything_is_delivered_once(broker: Broker, tmp_path: Path, database: psycopg.Connection[Any]) -> None:
    lake, path = tmp_path / "lake", tmp_path / "app.py"
    path.write_text(DELIVERING.format(lake=str(lake)), encoding="utf-8")
    database.execute(TABLE)
    settings = {"DATABASE": database.info.dsn, "PENSTOCK_STATE_DIR": str(tmp_path / "state")}

    code, log = run(path, broker, **settings)  # creates the topics, and has nothing to do
    assert code == 0, log
    topics.produce(broker.bootstrap_servers, "delivered-orders", orders(("ann", 5), ("bob", 7), ("ann", 6)))
    code, log = run(path, broker, **settings)
    assert code == 0, log
    assert database.execute("SELECT * FROM totals ORDER BY customer").fetchall() == [("ann", 2, 11), ("bob", 1, 7)]

    topics.produce(broker.bootstrap_servers, "delivered-orders", orders(("bob", 2_000), ("ann", 1)))
    code, log = run(path, broker, **settings)
    assert code == 0, log
    assert database.execute("SELECT * FROM totals").fetchall() == [("ann", 3, 12)]
    files = [row for found in sorted(lake.glob("*.parquet")) for row in pq.read_table(found).to_pylist()]
    assert sorted((row["_key"], row["amount"]) for row in files) == [
        ("ann", 1),
        ("ann", 5),
        ("ann", 6),
        ("bob", 7),
        ("bob", 2_000),
    ]
    assert len(topics.end_offsets(broker.bootstrap_servers, "delivered-orders")) == 3


def test_a_record_that_cannot_be_delivered_becomes_a_dead_letter(broker: Broker, tmp_path: Path) -> None:
    lake, path = tmp_path / "lake", tmp_path / "app.py"
    path.write_text(REFUSING.format(lake=str(lake)), encoding="utf-8")
    topics.create(broker.bootstrap_servers, "refused-letters", 1)
    topics.create(broker.bootstrap_servers, "refused-in", 1)
    values = [b'{"a": 1}', b'{"a": [1, "x"]}', b'{"a": 2}']
    topics.produce(broker.bootstrap_servers, "refused-in", [Sent(key=b"k", value=value) for value in values])
    code, log = run(path, broker, PENSTOCK_STATE_DIR=str(tmp_path / "state"))
    assert code == 0, log
    assert [row["a"] for found in sorted(lake.glob("*.parquet")) for row in pq.read_table(found).to_pylist()] == [1, 2]
    [letter] = topics.read(broker.bootstrap_servers, "refused-letters")
    assert letter.value == b'{"a":[1,"x"]}'
    headers = dict(letter.headers)
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (b"refused-out", b"1")
    assert headers["__penstock.errors.kind"] == b"production"


@pytest.mark.slow  # Spark starts for it
def test_files_come_before_the_topic(broker: Broker, tmp_path: Path) -> None:
    lake, path = tmp_path / "lake", tmp_path / "app.py"
    lake.mkdir()
    at = [1_700_000_000_000 + number for number in range(30)]
    rows = {"id": list(range(30)), "customer": ["ann", "bob", "cid"] * 10, "amount": [1] * 30, "at": at}
    pq.write_table(pa.table(rows), lake / "orders.parquet")
    path.write_text(BACKFILLED.format(lake=str(lake)), encoding="utf-8")
    settings = {"PENSTOCK_STATE_DIR": str(tmp_path / "state")}

    code, log = run(path, broker, ON_SPARK, **settings)
    assert code == 0, log
    assert "backfilled-history is complete: 30 rows" in log
    topics.produce(broker.bootstrap_servers, "backfilled-orders", orders(("ann", 1)))
    code, log = run(path, broker, **settings)  # Spark is no longer needed
    assert code == 0, log
    found = {record.key: record.value for record in topics.read(broker.bootstrap_servers, "backfilled-counts")}
    assert {key: int.from_bytes(value or b"", "big") for key, value in found.items()} == {b"ann": 11, b"bob": 10, b"cid": 10}


@pytest.mark.slow  # Spark starts for it
def test_rows_that_cannot_be_told_apart_are_refused(broker: Broker, tmp_path: Path) -> None:
    lake, path = tmp_path / "lake", tmp_path / "app.py"
    lake.mkdir()
    pq.write_table(pa.table({"id": [1, 1], "customer": ["a", "b"], "amount": [1, 1], "at": [1, 2]}), lake / "orders.parquet")
    path.write_text(BACKFILLED.format(lake=str(lake)).replace("backfilled", "refilled"), encoding="utf-8")
    code, log = run(path, broker, ON_SPARK, PENSTOCK_STATE_DIR=str(tmp_path / "state"))
    assert code != 0
    assert "several rows have id=1" in log
