"""`Postgres`: a table in PostgreSQL that has what a topic says, or a row for each of its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.delivery.target import Offsets, Row, Target, columns_of, refuse_new_topic
from penstock.errors import FencedError, PenstockError, TopologyError
from penstock.extras import extra
from penstock.records import Delivered
from penstock.settings import Secret, resolved

if TYPE_CHECKING:
    import psycopg

_CREATE = """
CREATE TABLE IF NOT EXISTS penstock_deliveries (
    name text NOT NULL, "table" text NOT NULL, topic_id text NOT NULL, columns text[] NOT NULL,
    "partition" integer NOT NULL, next_offset bigint NOT NULL, PRIMARY KEY (name, "table", "partition")
)"""
_IS_OLD = """
SELECT NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'penstock_deliveries'::regclass AND attname = 'topic_id' AND NOT attisdropped
)"""
_RENEW = """
ALTER TABLE penstock_deliveries
    ADD COLUMN "table" text NOT NULL DEFAULT '', ADD COLUMN topic_id text NOT NULL DEFAULT '',
    ADD COLUMN columns text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT penstock_deliveries_pkey, ADD PRIMARY KEY (name, "table", "partition")"""
"""Earlier versions had one delivery of a topic per database, and stored only its offsets."""
_ADOPT = """
UPDATE penstock_deliveries SET "table" = %(table)s WHERE name = %(name)s AND "table" = ''
AND NOT EXISTS (SELECT FROM penstock_deliveries WHERE name = %(name)s AND "table" = %(table)s)"""
_KEPT = 'SELECT "partition", next_offset, topic_id, columns FROM penstock_deliveries WHERE name = %s AND "table" = %s'
_KEEP = """
INSERT INTO penstock_deliveries (name, "table", topic_id, columns, "partition", next_offset) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (name, "table", "partition")
DO UPDATE SET topic_id = EXCLUDED.topic_id, columns = EXCLUDED.columns, next_offset = EXCLUDED.next_offset"""
_ANEW = (
    "Deliver it to a new table, or delete its rows in penstock_deliveries: then all of the new topic is delivered to the "
    "table as it is."
)
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class _Kept(NamedTuple):
    """What is stored of a partition: the next offset, the id of its topic, and the columns that records have had."""

    offset: int
    topic_id: str
    columns: list[str]


class Postgres(Target):
    """Delivers a topic into a table of PostgreSQL.

    The table `penstock_deliveries` has, by topic and table, the topic's id and offsets; they are written in the same transaction.

    With `key`, the names of the columns that identify a row, a record replaces the row of its key, and a deletion deletes it:
    the table has what a table of the topology has. A column that earlier records have had, and this one does not, gets its
    default; columns that no record has had are not touched. Without `key`, each record becomes a row.

    Columns are the fields of the value, and the record's key is in the column `key`. For other columns, `row(key, value)` returns
    a dict of them, for a deletion of those in `key`. The table must exist, and have a unique index on `key`. `dsn` is a
    connection string; `env:NAME` or `file:PATH` reads it from there.

    Needs `pip install 'penstock-streams[postgres]'`.

    Example:
        >>> from penstock.delivery import Postgres
        >>> Postgres("env:SHOP_DATABASE", "totals", key="customer")
        Postgres('totals')
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str] = (),
        row: Callable[[Any, Any], Row] | None = None,
    ) -> None:
        self._psycopg = extra("postgres", "psycopg", f"Delivery to table {table!r}")
        self._dsn = Secret(dsn)
        self._table = table
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._row = row or self._own_row
        self._name = self._topic_id = ""
        self._connection: psycopg.Connection[Any] | None = None
        if row is None and len(self._key) > 1:
            raise TopologyError(f"Delivery to table {table!r}: with several columns in key=, give row=, which returns them.")

    def open(self, name: str, topic_id: str = "") -> Offsets:
        """See `Target`."""
        self.close()
        self._name = name
        self._connection = connection = self._psycopg.connect(resolved("dsn", self._dsn.reveal(), os.environ), autocommit=True)
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME, ("penstock_deliveries",))  # two instances must not create it at the same time
            connection.execute(_CREATE)
            if connection.execute(_IS_OLD).fetchone() == (True,):
                connection.execute(_RENEW)
            connection.execute(_ADOPT, {"name": name, "table": self._table})
        kept = self._kept(connection)
        for each in kept.values():
            refuse_new_topic(each.topic_id, topic_id, _ANEW)
        self._topic_id = topic_id or next((each.topic_id for each in kept.values()), "")
        return {partition: each.offset for partition, each in kept.items()}

    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """See `Target`."""
        connection = self._connection
        assert connection is not None, "it is open"
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME, (self._name,))
            kept = self._kept(connection)
            if any(partition in kept and kept[partition].offset != begin for partition, begin in begins.items()):
                raise FencedError(f"Another instance delivers {self._name!r} to table {self._table!r}.")
            known = frozenset[str]().union(*(each.columns for each in kept.values()))
            with connection.cursor() as cursor:
                columns = sorted(self._store(cursor, rows, known))
                moved = [each for each in ends.items() if each[0] not in kept or kept[each[0]].offset != each[1]]
                cursor.executemany(_KEEP, [(self._name, self._table, self._topic_id, columns, *each) for each in moved])

    def close(self) -> None:
        """See `Target`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_temporary(self, error: Exception) -> bool:
        """See `Target`: whether the connection is lost, or the server is busy or starting."""
        return isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)

    def is_of_record(self, error: Exception) -> bool:
        """See `Target`: whether a column cannot hold a value, a constraint forbids it, or `row` has failed."""
        driver = self._psycopg
        if not isinstance(error, driver.Error):
            return not isinstance(error, OSError | MemoryError | PenstockError)
        if isinstance(error, driver.ProgrammingError):  # about the statement, unless it is a value that has another type
            return isinstance(error, driver.errors.DatatypeMismatch) or error.sqlstate is None
        return isinstance(error, driver.DataError | driver.IntegrityError)

    def __repr__(self) -> str:
        return f"Postgres({self._table!r})"

    def _kept(self, connection: psycopg.Connection[Any]) -> dict[int, _Kept]:
        found = connection.execute(_KEPT, (self._name, self._table)).fetchall()
        return {partition: _Kept(*rest) for partition, *rest in found}

    def _own_row(self, key: Any, value: Any) -> Row:
        identity = {self._key[0]: key} if self._key else {}
        return identity if value is None else {**columns_of(value), **identity}

    def _store(self, cursor: Any, rows: Sequence[Delivered], known: Collection[str]) -> Collection[str]:
        """Write the rows; return all columns that records have had, of which `known` are those before."""
        if not self._key:
            self._execute(cursor, self._insert, [self._row(each.key, each.value) for each in rows if each.value is not None])
            return known
        stored: dict[Any, Row] = {}
        deleted: dict[Any, Row] = {}
        for record in rows:
            row = self._row(record.key, record.value)
            identity = tuple(row[column] for column in self._key)
            if record.value is None:
                stored.pop(identity, None)
                deleted[identity] = {column: row[column] for column in self._key}
            else:
                stored[identity] = row  # of several changes of a key, the last one
        columns = frozenset(known).union(*stored.values())
        self._execute(cursor, self._delete, list(deleted.values()))  # also of a key that comes back: its row begins anew
        self._execute(cursor, partial(self._upsert, columns), list(stored.values()))
        return columns

    def _execute(self, cursor: Any, statement: Callable[[tuple[str, ...]], Any], rows: Sequence[Row]) -> None:
        """Run one statement for all rows with the same columns."""
        by_columns: dict[tuple[str, ...], list[list[Any]]] = {}
        for row in rows:
            by_columns.setdefault(tuple(row), []).append([self._adapted(value) for value in row.values()])
        for columns, values in by_columns.items():
            cursor.executemany(statement(columns), values)

    def _adapted(self, value: Any) -> Any:
        """Return a value as PostgreSQL takes it: what has parts becomes JSON."""
        return self._psycopg.types.json.Jsonb(value) if isinstance(value, dict | list) else value

    def _insert(self, columns: tuple[str, ...]) -> Any:
        sql = self._psycopg.sql
        return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(*self._table.split(".")), self._names(columns), sql.SQL(", ").join(sql.Placeholder() * len(columns))
        )

    def _upsert(self, known: Collection[str], columns: tuple[str, ...]) -> Any:
        """Insert a row, or replace it: a column that earlier records have had, and this one does not, gets its default."""
        sql = self._psycopg.sql
        others = [column for column in columns if column not in self._key]
        gone = sorted(set(known).difference(columns, self._key))
        set_each = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column)) for column in others]
        set_each += [sql.SQL("{} = DEFAULT").format(sql.Identifier(column)) for column in gone]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(set_each)) if set_each else sql.SQL("NOTHING")
        return sql.SQL("{} ON CONFLICT ({}) DO {}").format(self._insert(columns), self._names(self._key), action)

    def _delete(self, columns: tuple[str, ...]) -> Any:
        sql = self._psycopg.sql
        conditions = [sql.SQL("{} = %s").format(sql.Identifier(column)) for column in columns]
        table = sql.Identifier(*self._table.split("."))
        return sql.SQL("DELETE FROM {} WHERE {}").format(table, sql.SQL(" AND ").join(conditions))

    def _names(self, columns: Sequence[str]) -> Any:
        sql = self._psycopg.sql
        return sql.SQL(", ").join(map(sql.Identifier, columns))
