"""`Postgres`: what it writes, and where it continues, with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.delivery import Delivered, Postgres
from penstock.errors import FencedError, TopicError
from verification.harness.postgres import Postgres as Server

pytestmark = pytest.mark.jvm

ORDERS = "shop/orders"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, with nothing in it but the tables `orders` and `copies`."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS penstock_deliveries, orders, copies, numbers")
        for name in ("orders", "copies"):
            connection.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, name text, email text, note text DEFAULT 'none')")
        yield connection


def deliver(server: Server, *batches: list[tuple[str, Any]], table: str = "orders") -> None:
    """Deliver these keys and values, in these batches."""
    target = Postgres(server.dsn, table, key="id")
    begin = target.open(ORDERS, "first").get(0, 0)
    for batch in batches:
        rows = [Delivered(key, value, 1, (), 0, begin + number) for number, (key, value) in enumerate(batch)]
        target.write(rows, {0: begin}, {0: begin + len(batch)})
        begin += len(batch)
    target.close()


def test_it_continues_where_it_has_stopped(server: Server, database: psycopg.Connection[Any]) -> None:
    deliver(server, [("ann", {"name": "Ann"})], [("bob", {"name": "Bob"})])
    target = Postgres(server.dsn, "orders", key="id")
    assert target.open(ORDERS, "first") == {0: 2}
    assert target.open("shop/returns", "other") == {}
    target.close()


def test_a_topic_that_was_created_again_is_refused(server: Server, database: psycopg.Connection[Any]) -> None:
    deliver(server, [("ann", {"name": "Ann"})])
    target = Postgres(server.dsn, "orders", key="id")
    with pytest.raises(TopicError, match=r"created again .*delete its rows in penstock_deliveries"):
        target.open(ORDERS, "second")
    database.execute("DELETE FROM penstock_deliveries")
    assert target.open(ORDERS, "second") == {}
    target.close()


def test_offsets_are_stored_without_rows(server: Server, database: psycopg.Connection[Any]) -> None:
    deliver(server, [("ann", {"name": "Ann"})])
    target = Postgres(server.dsn, "orders", key="id")
    target.open(ORDERS, "first")
    target.write([], {0: 1}, {0: 2, 1: 0})
    assert target.open(ORDERS, "first") == {0: 2, 1: 0}
    target.close()


def test_each_table_has_offsets_of_its_own(server: Server, database: psycopg.Connection[Any]) -> None:
    deliver(server, [("ann", {"name": "Ann"})])
    deliver(server, [("ann", {"name": "Ann"})], table="copies")
    assert database.execute("SELECT name FROM copies").fetchall() == [("Ann",)]


def test_of_two_instances_only_one_writes_a_batch(server: Server, database: psycopg.Connection[Any]) -> None:
    target = Postgres(server.dsn, "orders", key="id")
    target.open(ORDERS)
    deliver(server, [("ann", {"name": "Ann"})])
    with pytest.raises(FencedError, match="Another instance"):
        target.write([Delivered("bob", {}, 1, (), 0, 0)], {0: 0}, {0: 1})
    target.close()
    assert database.execute("SELECT id FROM orders").fetchall() == [("ann",)]


def test_it_continues_what_earlier_versions_have_stored(server: Server, database: psycopg.Connection[Any]) -> None:
    database.execute(
        'CREATE TABLE penstock_deliveries (name text NOT NULL, "partition" integer NOT NULL, next_offset bigint NOT NULL, '
        'PRIMARY KEY (name, "partition"))'
    )
    database.execute("INSERT INTO penstock_deliveries VALUES (%s, 0, 7), ('shop/returns', 0, 3)", [ORDERS])
    target = Postgres(server.dsn, "orders", key="id")
    assert target.open(ORDERS, "first") == {0: 7}
    target.close()
    other = Postgres(server.dsn, "copies", key="id")
    assert other.open(ORDERS) == {}
    other.close()
    deliver(server, [("ann", {"name": "Ann"})])
    assert target.open(ORDERS, "first") == {0: 8}
    target.close()


def rows(database: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return database.execute("SELECT id, name, email, note FROM orders ORDER BY id").fetchall()


BATCHES = [
    pytest.param(lambda changes: [changes], id="one batch"),
    pytest.param(lambda changes: [[change] for change in changes], id="a batch for each"),
]


@pytest.mark.parametrize("cut", BATCHES)
class TestARowIsWhatTheRecordSays:
    def test_a_field_that_is_gone(self, server: Server, database: psycopg.Connection[Any], cut: Any) -> None:
        first = ("ann", {"name": "Ann", "email": "ann@example.org", "note": "x"})
        deliver(server, *cut([first, ("bob", {"name": "Bob"}), ("ann", {"name": "Ann"})]))
        assert rows(database) == [("ann", "Ann", None, "none"), ("bob", "Bob", None, "none")]

    def test_a_field_that_was_there_before_the_last_start(
        self, server: Server, database: psycopg.Connection[Any], cut: Any
    ) -> None:
        deliver(server, [("ann", {"name": "Ann", "email": "ann@example.org"})])
        deliver(server, *cut([("ann", {"name": "Ann"}), ("ann", {})]))
        assert rows(database) == [("ann", None, None, "none")]

    def test_a_column_of_others_stays(self, server: Server, database: psycopg.Connection[Any], cut: Any) -> None:
        deliver(server, [("ann", {"name": "Ann"})])
        database.execute("UPDATE orders SET note = 'by hand'")
        deliver(server, *cut([("ann", {"name": "Anne"}), ("ann", {"name": "Anna"})]))
        assert rows(database) == [("ann", "Anna", None, "by hand")]

    def test_a_key_that_comes_back_begins_anew(self, server: Server, database: psycopg.Connection[Any], cut: Any) -> None:
        deliver(server, [("ann", {"name": "Ann"})])
        database.execute("UPDATE orders SET note = 'by hand'")
        deliver(server, *cut([("ann", None), ("ann", {"name": "Anna"})]))
        assert rows(database) == [("ann", "Anna", None, "none")]


@pytest.mark.parametrize(
    ("value", "is_of_record"),
    [
        ({"number": 2**70}, True),
        ({"number": "seven"}, True),
        ({"number": True}, True),
        ({"name": "a\0b"}, True),
        ({"name": object()}, True),
        ({"name": {"a": object()}}, True),
        ({"name": None}, True),
        ({"nobody": 1}, False),
    ],
    ids=repr,
)
def test_it_says_whether_a_record_is_at_fault(
    server: Server, database: psycopg.Connection[Any], value: dict[str, Any], is_of_record: bool
) -> None:
    database.execute("CREATE TABLE numbers (id text PRIMARY KEY, number bigint, name text NOT NULL DEFAULT '')")
    target = Postgres(server.dsn, "numbers", key="id")
    target.open(ORDERS, "first")
    good = Delivered("ann", {"number": 1, "name": "Ann"}, 1, (), 0, 0)
    with pytest.raises((psycopg.Error, TypeError)) as caught:
        target.write([good, Delivered("bob", value, 1, (), 0, 1)], {0: 0}, {0: 2})
    assert target.is_of_record(caught.value) == is_of_record
    assert not target.is_temporary(caught.value)
    target.write([good], {0: 0}, {0: 2})  # nothing was stored, and the connection is as it was
    assert database.execute("SELECT id FROM numbers").fetchall() == [("ann",)]
    target.close()


def test_a_row_function_that_fails_is_about_its_record(server: Server, database: psycopg.Connection[Any]) -> None:
    target = Postgres(server.dsn, "orders", key="id", row=lambda key, value: {"id": value["id"]})
    target.open(ORDERS, "first")
    with pytest.raises(KeyError) as caught:
        target.write([Delivered("ann", {}, 1, (), 0, 0)], {0: 0}, {0: 1})
    assert target.is_of_record(caught.value)
    target.close()
