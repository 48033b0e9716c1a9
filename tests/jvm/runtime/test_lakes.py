"""A stream that begins with a Delta table, joined with a global table of PostgreSQL's rows: real Spark with their jars."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.jvm.runtime.test_life_cycle import ON_SPARK, started
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.postgres import Postgres
from verification.harness.processes import PARTS

JARS = sorted((PARTS / "lake").glob("*.jar"))

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(not JARS, reason="no jars: tools/lake/bring .parts/lake")]

JOINED = """
import os

from penstock import App, StreamsBuilder

ORDERS = "SELECT * FROM VALUES (1, 'CH', 1700000000000), (2, 'FR', 1700000000001), (3, 'CH', 1700000000002) AS t (id, code, at)"


def orders(spark):
    spark.sql(ORDERS).write.format("delta").mode("ignore").save("orders")
    return spark.read.format("delta").load("orders")


def countries(spark):
    source = spark.read.format("jdbc").option("url", os.environ["DATABASE"]).option("user", "postgres")
    return source.option("driver", "org.postgresql.Driver").option("dbtable", "countries").load()


builder = StreamsBuilder()
names = builder.global_table_from(
    countries, lambda row: (row["code"], row["name"]), store="countries", key=str, value=str
)
ordered = builder.read(
    orders, lambda row: (str(row["id"]), row["code"], row["at"]), order_by="id", history="lake-orders", key=str, value=str
)
ordered.join(names, lambda code, name: name, on=lambda key, code: code).to("lake-named", value=str)
app = App("lake", builder.build())
if __name__ == "__main__":
    app.run(
        until="latest",
        create_topics=True,
        spark={
            "spark.jars": os.environ["JARS"],
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",  # the default, 50, takes minutes on a small machine
        },
    )
"""


SLOW_S = 400
"""The first use of a Delta table loads and compiles much of its jar."""


def run(path: Path, broker: Broker, database: str) -> tuple[int, str]:
    with started(path, broker, ON_SPARK, DATABASE=database, JARS=",".join(map(str, JARS))) as process:
        return process.wait(SLOW_S), path.with_suffix(".log").read_text()


def test_delta_tables_and_jdbc_are_read_with_their_jars(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(JOINED, encoding="utf-8")
    with Postgres() as server, psycopg.connect(server.dsn, autocommit=True) as database:
        database.execute("CREATE TABLE countries (code text PRIMARY KEY, name text)")
        database.execute("INSERT INTO countries VALUES ('CH', 'Switzerland'), ('FR', 'France')")
        address = f"jdbc:postgresql://127.0.0.1:{database.info.port}/postgres"
        code, log = run(path, broker, address)
    assert code == 0, log
    found = [(record.key, record.value) for record in topics.read(broker.bootstrap_servers, "lake-named")]
    assert sorted(found) == [(b"1", b"Switzerland"), (b"2", b"France"), (b"3", b"Switzerland")]

    code, log = run(path, broker, address)  # the database is down
    assert code == 0, log
    assert "the global table countries keeps its rows" in log
    assert "Couldn't connect to the database" in log
