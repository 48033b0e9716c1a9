"""Queries of a real application by views, HTTP and SQL: results are of committed epochs only."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.routing import Router
from starlette.types import Message

from penstock import App, Store, StreamsBuilder, Topology, tumbling
from penstock.admin.queries import routes
from penstock.errors import NotReadyError, QueryError, QueryTimeoutError, UnknownStoreError
from penstock.queries import KeyQuery, RangeQuery
from penstock.runtime.application import RunningApplication
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

START_S = 120
KEYS = 40


@dataclass
class Seen:
    times: int
    last: str


def topology() -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("q-names", value=str, store="names")
    lines = builder.stream("q-in", value=str)
    counts = lines.group_by_key().count(store="counts")
    counts.to_stream().to("q-out", value=int)
    lines.group_by_key().windowed_by(tumbling("1s")).count(store=Store("by-second", retention="1h"))
    lines.group_by_key().aggregate(
        lambda: Seen(0, ""), lambda key, value, seen: Seen(seen.times + 1, value), value=Seen, store="seen"
    )
    lines.join(names, lambda line, name: f"{name}: {line}", on=lambda key, line: key).to("q-out", value=str)
    return builder.build()


def produce(broker: Broker, rounds: range) -> None:
    """Every key once per round."""
    for number in rounds:
        records = [topics.Sent(key=b"k%02d" % key, value=b"v%d" % number, timestamp=1_000 * number) for key in range(KEYS)]
        topics.produce(broker.bootstrap_servers, "q-in", records)


@pytest.fixture(scope="module")
def running(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApplication]:
    servers = broker.bootstrap_servers
    for topic in ("q-in", "q-out", "q-names"):
        topics.create(servers, topic, partitions=2)
    topics.produce(servers, "q-names", [topics.Sent(key=b"k01", value=b"one")])
    directory = tmp_path_factory.mktemp("state")
    settings: dict[str, Any] = {"bootstrap_servers": servers, "lanes": 2, "state_dir": directory, "admin_address": "off"}
    started = App("queried", topology()).start(**settings)
    with pytest.raises(NotReadyError, match="Cannot query 'queried' now"):
        started.store("counts")
    with started:
        assert started.wait_until_running(START_S)
        produce(broker, range(1, 4))
        wait_until("all to be counted", lambda: started.store("counts").get("k01") == 3, START_S)
        yield started
    with pytest.raises(NotReadyError):
        started.store("counts")


def test_views_and_queries(running: RunningApplication) -> None:
    counts = running.store("counts")
    rounds = counts["k03"]  # other tests may have had their rounds before
    assert rounds >= 3
    assert [key for key, _ in counts.range("k03", "k05")] == ["k03", "k04", "k05"]
    assert len(counts) == KEYS
    assert counts.entry("k03").timestamp == 1000 * rounds
    by_second = list(running.store("by-second").fetch_range("k03", 0, 1000 * rounds))
    assert by_second == [(1000 * number, 1) for number in range(1, rounds + 1)]
    assert running.store("seen")["k03"] == Seen(rounds, f"v{rounds}")
    assert running.store("names")["k01"] == "one"
    answer = running.query("counts", KeyQuery("k03"), at_least_epoch=0)
    assert (answer.value, answer.epoch) == (rounds, running.epoch)
    with pytest.raises(UnknownStoreError, match="Known stores: by-second, counts, names, seen"):
        running.store("nope")


def test_results_are_always_of_the_committed_epoch(running: RunningApplication, broker: Broker) -> None:
    """A count that grows by one per round, queried all the time: never less than before, and never of a later epoch."""
    ended = threading.Event()
    wrong: list[object] = []
    asked = 0

    def ask() -> None:
        nonlocal asked
        last: tuple[int, int] = (-1, -1)
        while not ended.is_set():
            before = running.epoch
            answer = running.query("counts", RangeQuery("k00", "k39"))
            total = sum(count for _, count in answer.value)
            if not before <= answer.epoch <= running.epoch or (answer.epoch, total) < last:
                wrong.append((before, answer.epoch, total, last))
            if answer.epoch == last[0] and total != last[1]:
                wrong.append((answer.epoch, total, last))
            last = (answer.epoch, total)
            asked += 1

    thread = threading.Thread(target=ask)
    thread.start()
    first = running.epoch
    for number in range(4, 14):
        produce(broker, range(number, number + 1))
        time.sleep(0.1)
    wait_until("all to be counted", lambda: running.store("counts").get("k01") == 13, START_S)
    ended.set()
    thread.join(10)
    assert not wrong
    assert asked > 20
    assert running.epoch > first


def test_sql(running: RunningApplication) -> None:
    total = running.store("counts")["k01"]
    assert running.sql("select key, value from counts where key < 'k02' order by key").collect() == [
        ("k00", total),
        ("k01", total),
    ]
    assert running.sql("select max(window_start) from `by-second`").collect()[0][0] == 1_000 * total
    assert running.sql("select s.value.last, n.value from seen s join names n using (key)").collect() == [(f"v{total}", "one")]
    frame = running.table("seen")
    assert frame.schema.simpleString() == "struct<key:string,value:struct<times:bigint,last:string>,timestamp:bigint>"
    assert frame.count() == KEYS
    with pytest.raises(UnknownStoreError):
        running.table("nope")


def test_sql_over_http(running: RunningApplication) -> None:
    total = running.store("counts")["k01"]
    status, answer = post(running, "/sql", {"sql": "select key, value from counts order by key", "limit": 2})
    assert status == 200
    assert answer["rows"] == [["k00", total], ["k01", total]]
    assert (answer["is_complete"], answer["epochs"][0] <= running.epoch) == (False, True)
    assert [column["name"] for column in answer["columns"]] == ["key", "value"]
    query = "with top as (select * from counts limit 5) select count(*) as n from top where key in (select key from `by-second`)"
    assert post(running, "/sql", {"sql": query})[1]["rows"] == [[5]]


@pytest.mark.security(8)
@pytest.mark.parametrize(
    "query",
    [
        "select reflect('java.lang.System', 'getProperty', 'user.home')",
        "select builtin.reflect('java.lang.System', 'getProperty', 'user.home')",
        "select system.builtin.java_method('java.lang.System', 'getProperty', 'user.home')",
        "select try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "select repeat('a', 2000000000)",
        "select * from text.`/etc/passwd`",
        "select * from parquet.`/etc/passwd`",
        "select * from identifier('text.`/etc/passwd`')",
        "select transform(key) using 'cat' from counts",
        "select * from counts where key in (select transform(key) using 'cat' from counts)",
        "with a as (select transform(key) using 'cat' from counts) select * from a",
        "create table t as select * from counts",
        "create temporary view v as select 1",
        "drop view counts",
        "insert into counts select 1",
        "set spark.sql.runSQLOnFiles=true",
        "show tables",
        "describe counts",
        "explain select 1",
        "cache table counts",
        "add jar '/etc/passwd'",
        "execute immediate 'drop view counts'",
        "begin select 1; end",
        "select 1; select 2",
        "select * from range(10)",
        "select * from python_worker_logs()",
        "select * from other",
        "select * from default.counts",
        "select",
        "",
        "select raise_error('x') from counts",
        "select 1 " + "+ 1" * 20_000,
    ],
)
def test_sql_over_http_is_for_queries_of_stores_only(running: RunningApplication, query: str) -> None:
    status, answer = post(running, "/sql", {"sql": query})
    assert status == 400, answer
    assert "Exception" not in answer["error"]
    assert "\tat " not in answer["error"]


@pytest.mark.security(8)
def test_a_query_that_takes_too_long_is_ended_and_others_are_answered(running: RunningApplication) -> None:
    crossed = " cross join ".join(f"counts c{number}" for number in range(7))
    endless = f"select count(c0.key || c1.key || c2.key || c3.key || c4.key || c5.key || c6.key) from {crossed}"
    with pytest.raises(QueryTimeoutError, match="took longer than 2 s"):
        running.guarded_sql(endless, 1, 1_000, 2.0)
    assert running.guarded_sql("select count(*) from counts", 1, 1_000, 10.0).to_pylist() == [{"count(1)": KEYS}]
    with pytest.raises(QueryError, match="bytes, more than the allowed 100"):
        running.guarded_sql("select * from counts", 100, 100, 10.0)


def test_point_reads_over_http(running: RunningApplication) -> None:
    status, body = asyncio.run(ask(running, "GET", "/stores/counts/get", b"key=k03"))
    assert (status, json.loads(body)["value"]) == (200, running.store("counts")["k03"])


def post(running: RunningApplication, path: str, body: object) -> tuple[int, Any]:
    status, answer = asyncio.run(ask(running, "POST", path, b"", json.dumps(body).encode()))
    return status, json.loads(answer)


async def ask(running: RunningApplication, method: str, path: str, query: bytes = b"", body: bytes = b"") -> tuple[int, bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": [], "root_path": ""}
    await Router(routes(running))(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]
