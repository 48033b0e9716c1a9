"""`Postgres`: a table in PostgreSQL that has what a topic says, or a row for each of its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.delivery.rows import columns_of
from penstock.delivery.target import Offsets, Target
from penstock.errors import FencedError, TopologyError
from penstock.extras import extra
from penstock.records import Delivered
from penstock.settings import Secret, resolved

if TYPE_CHECKING:
    import psycopg

Row = Mapping[str, Any]
"""A row of the table, by column."""

_CREATE = """
CREATE TABLE IF NOT EXISTS penstock_deliveries (
    name text NOT NULL, "partition" integer NOT NULL, next_offset bigint NOT NULL, PRIMARY KEY (name, "partition")
)"""
_KEPT = 'SELECT "partition", next_offset FROM penstock_deliveries WHERE name = %s'
_KEEP = """
INSERT INTO penstock_deliveries (name, "partition", next_offset) VALUES (%s, %s, %s)
ON CONFLICT (name, "partition") DO UPDATE SET next_offset = EXCLUDED.next_offset"""
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class Postgres(Target):
    """Delivers a topic into a table of PostgreSQL. Offsets are in the table `penstock_deliveries`, in the same transaction.

    With `key`, the names of the columns that identify a row, a record replaces the row of its key, and a deletion deletes it:
    the table has what a table of the topology has. Without it, each record becomes a row. Columns are the fields of the value,
    and the record's key is in the column `key`. For other columns, `row(key, value)` returns a dict of them, for a deletion of
    those in `key`. The table must exist, and have a unique index on `key`. `dsn` is a connection string; `env:NAME` or
    `file:PATH` reads it from there.

    Needs `pip install 'penstock[postgres]'`.

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
        self._name = ""
        self._connection: psycopg.Connection[Any] | None = None
        if row is None and len(self._key) > 1:
            raise TopologyError(f"Delivery to table {table!r}: with several columns in key=, give row=, which returns them.")

    def open(self, name: str) -> Offsets:
        """See `Target`."""
        self.close()
        self._name = name
        self._connection = connection = self._psycopg.connect(resolved("dsn", self._dsn.reveal(), os.environ), autocommit=True)
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME, ("penstock_deliveries",))  # two instances must not create it at the same time
            connection.execute(_CREATE)
        return dict(connection.execute(_KEPT, (name,)).fetchall())

    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """See `Target`."""
        connection = self._connection
        assert connection is not None, "it is open"
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME, (self._name,))
            kept = dict(connection.execute(_KEPT, (self._name,)).fetchall())
            if any(kept.get(partition, begin) != begin for partition, begin in begins.items()):
                raise FencedError(f"Another instance delivers {self._name!r} to table {self._table!r}.")
            with connection.cursor() as cursor:
                self._store(cursor, rows)
                cursor.executemany(_KEEP, [(self._name, partition, offset) for partition, offset in ends.items()])

    def close(self) -> None:
        """See `Target`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_temporary(self, error: Exception) -> bool:
        """See `Target`: whether the connection is lost, or the server is busy or starting."""
        return isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)

    def __repr__(self) -> str:
        return f"Postgres({self._table!r})"

    def _own_row(self, key: Any, value: Any) -> Row:
        identity = {self._key[0]: key} if self._key else {}
        return identity if value is None else {**columns_of(value), **identity}

    def _store(self, cursor: Any, rows: Sequence[Delivered]) -> None:
        stored: dict[Any, tuple[Row, bool]] = {}
        for number, record in enumerate(rows):
            row = self._row(record.key, record.value)
            identity = tuple(row[column] for column in self._key) if self._key else number
            stored[identity] = (row, record.value is None)  # of several changes of a key, the last one
        if not self._key:
            self._execute(cursor, self._insert, [row for row, is_deletion in stored.values() if not is_deletion])
            return
        deleted = [{column: row[column] for column in self._key} for row, is_deletion in stored.values() if is_deletion]
        self._execute(cursor, self._delete, deleted)
        self._execute(cursor, self._upsert, [row for row, is_deletion in stored.values() if not is_deletion])

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

    def _upsert(self, columns: tuple[str, ...]) -> Any:
        sql = self._psycopg.sql
        others = [column for column in columns if column not in self._key]
        set_each = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column)) for column in others]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(set_each)) if others else sql.SQL("NOTHING")
        return sql.SQL("{} ON CONFLICT ({}) DO {}").format(self._insert(columns), self._names(self._key), action)

    def _delete(self, columns: tuple[str, ...]) -> Any:
        sql = self._psycopg.sql
        conditions = [sql.SQL("{} = %s").format(sql.Identifier(column)) for column in columns]
        table = sql.Identifier(*self._table.split("."))
        return sql.SQL("DELETE FROM {} WHERE {}").format(table, sql.SQL(" AND ").join(conditions))

    def _names(self, columns: Sequence[str]) -> Any:
        sql = self._psycopg.sql
        return sql.SQL(", ").join(map(sql.Identifier, columns))
