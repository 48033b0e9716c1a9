"""A global table of a DataFrame, on a real broker and real Spark: its rows change, cannot be read, and a refresh is killed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jvm.runtime.test_life_cycle import ON_SPARK, START_S, finish, run, started
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # several starts each

JOINED = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
countries = builder.global_table_from(
    lambda spark: spark.read.parquet({lake!r}),
    lambda row: (row["code"], row["name"]),
    store="countries",
    key=str,
    value=str,
    refresh="1s",
)
visits = builder.stream("{name}-in", value=str)
visits.left_join(countries, lambda code, name: name, on=lambda key, code: code).to("{name}-out", value=str)
app = App("{name}", builder.build())
if __name__ == "__main__":
    app.run({arguments})
"""


class Visits:
    """An application that joins with the table, its files, and its topics."""

    def __init__(self, broker: Broker, directory: Path, name: str, arguments: str = 'until="latest"') -> None:
        self.broker, self.name, self.lake = broker, name, directory / "lake"
        self.lake.mkdir()
        self.path = directory / "app.py"
        self.path.write_text(JOINED.format(name=name, lake=str(self.lake), arguments=arguments), encoding="utf-8")
        for topic in (f"{name}-in", f"{name}-out"):
            topics.create(broker.bootstrap_servers, topic)

    def has(self, **names: str) -> None:
        """Let the files have these rows."""
        fresh = self.lake / "fresh"
        pq.write_table(pa.table({"code": list(names), "name": list(names.values())}), fresh)
        fresh.replace(self.lake / "countries.parquet")

    def visit(self, *codes: str) -> None:
        visits = [topics.Sent(key=code.encode(), value=code.encode()) for code in codes]
        topics.produce(self.broker.bootstrap_servers, f"{self.name}-in", visits)

    @property
    def seen(self) -> dict[bytes | None, bytes | None]:
        """The last name of each country that was visited."""
        return {record.key: record.value for record in topics.read(self.broker.bootstrap_servers, f"{self.name}-out")}

    @property
    def rows(self) -> list[tuple[bytes | None, bytes | None]]:
        """Everything that was committed to the table's topic."""
        found = topics.read(self.broker.bootstrap_servers, f"{self.name}-countries-global")
        return [(record.key, record.value) for record in found]


def test_only_differences_are_written_and_none_of_a_refresh_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    visits = Visits(broker, tmp_path, "framed")
    visits.has(CH="Switzerland", FR="France")
    killed = {"PENSTOCK_FAULT": "barrier.before_commit:1:kill"}

    code, log = run(visits.path, broker)
    assert (code, "Set engine to spark" in log) == (2, True), log
    code, _ = run(visits.path, broker, ON_SPARK, PENSTOCK_FAULT_DIR=str(tmp_path / "first"), **killed)
    assert (code, visits.rows) == (-signal.SIGKILL, [])

    visits.visit("CH", "IT")
    code, log = run(visits.path, broker, ON_SPARK)
    assert code == 0, log
    assert visits.rows == [(b"CH", b"Switzerland"), (b"FR", b"France")]
    assert visits.seen == {b"CH": b"Switzerland", b"IT": None}

    visits.has(FR="France", IT="Italy")
    code, _ = run(visits.path, broker, ON_SPARK, PENSTOCK_FAULT_DIR=str(tmp_path / "second"), **killed)
    assert (code, len(visits.rows)) == (-signal.SIGKILL, 2)
    visits.visit("CH", "IT")
    code, log = run(visits.path, broker)  # without Spark, it has what was loaded
    assert code == 0, log
    assert visits.seen == {b"CH": b"Switzerland", b"IT": None}

    visits.visit("CH", "IT", "FR")
    code, log = run(visits.path, broker, ON_SPARK)
    assert code == 0, log
    assert visits.rows[2:] == [(b"IT", b"Italy"), (b"CH", None)]
    assert visits.seen == {b"CH": None, b"IT": b"Italy", b"FR": b"France"}


def test_rows_that_cannot_be_read_are_reported_and_read_later(broker: Broker, tmp_path: Path) -> None:
    visits = Visits(broker, tmp_path, "refreshed", "create_topics=True")
    visits.has(CH="Switzerland")
    log = visits.path.with_suffix(".log")
    with started(visits.path, broker, ON_SPARK) as process:

        def problems() -> list[str]:
            [address] = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[:1]
            try:
                with urllib.request.urlopen(f"{address}/health/ready") as found:
                    answer = json.load(found)
            except urllib.error.HTTPError as error:
                answer = json.load(error)
            return [problem["what"] for problem in answer["problems"]]

        def sees(code: str, name: bytes) -> bool:
            visits.visit(code)
            return visits.seen.get(code.encode()) == name

        wait_until("the first rows", lambda: sees("CH", b"Switzerland"), START_S)
        visits.has(CH="Schweiz")
        wait_until("changed rows", lambda: sees("CH", b"Schweiz"), START_S)
        shutil.rmtree(visits.lake)
        wait_until("the problem", lambda: problems() == ["not refreshed"], START_S)
        visits.lake.mkdir()
        visits.has(CH="Svizzera")
        wait_until("rows that are read later", lambda: sees("CH", b"Svizzera") and problems() == [], START_S)
        process.send_signal(signal.SIGTERM)
        code, text = finish(process, visits.path)
    assert code == 0, text
    assert "the global table countries keeps its rows, because they cannot be read again; retrying in 1 s" in text
    assert visits.rows == [(b"CH", b"Switzerland"), (b"CH", b"Schweiz"), (b"CH", b"Svizzera")]
