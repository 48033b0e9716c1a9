"""Reads files of sample records: JSON lines, or CSV with a header. Every error names the file and the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from penstock.errors import ConfigError, QueryError, TopologyError
from penstock.queries.forms import strict_json
from penstock.records import LAST_TIMESTAMP, NO_HEADERS, Headers
from penstock.timing import instant_ms

_VALUE = "value"
_FIELDS = frozenset({"key", _VALUE, "timestamp", "headers"})


class Place(NamedTuple):
    """A line of a file."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def refuse(self, why: object) -> NoReturn:
        """Raise an error that names the line."""
        raise ConfigError(f"{self}: {why}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as a file has it: key and value are documents, which a serde's type gives a meaning.

    `is_text` says that all of it is text, as in CSV, so that numbers have to be read from it.
    """

    place: Place
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    headers: Headers = NO_HEADERS
    is_text: bool = False


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the records of a file: CSV if its name says so, else JSON lines."""
    try:
        yield from _of_csv(path) if path.suffix.lower() == ".csv" else _of_json_lines(path)
    except OSError as error:
        raise ConfigError(f"Cannot read {str(path)!r}: {error.strerror}.") from None


def _of_json_lines(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            place = Place(path, number)
            try:
                document = strict_json(line)
            except QueryError as error:
                place.refuse(error)
            yield _of_document(place, document)


def _of_document(place: Place, document: Any) -> Entry:
    """A line is a value, unless it is an object that has `value` and no other fields than those of a record."""
    if not isinstance(document, dict) or _VALUE not in document or not document.keys() <= _FIELDS:
        return Entry(place, value=document)
    timestamp = document.get("timestamp")
    return Entry(
        place,
        document.get("key"),
        document[_VALUE],
        None if timestamp is None else _timestamp(place, timestamp),
        _headers(place, document.get("headers") or {}),
    )


def _of_csv(path: Path) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            for row in rows:
                yield _of_row(Place(path, rows.line_num), row)
        except (csv.Error, UnicodeDecodeError) as error:
            Place(path, rows.reader.line_num).refuse(error)


def _of_row(place: Place, row: Mapping[str | None, Any]) -> Entry:
    """A row is an object of its columns, or the text in the column `value` if there is no other but key and timestamp."""
    cells = dict(row)
    if None in cells or None in cells.values():
        place.refuse("the row has not as many columns as the header.")
    key, timestamp = cells.pop("key", None), cells.pop("timestamp", None)
    value = cells[_VALUE] if cells.keys() == {_VALUE} else cells
    at = _timestamp(place, int(timestamp) if timestamp.isdecimal() else timestamp) if timestamp else None
    return Entry(place, key or None, value, at, is_text=True)


def _timestamp(place: Place, given: Any) -> int:
    try:
        found = instant_ms(given, "timestamp")
    except TopologyError as error:
        place.refuse(error)
    if not 0 <= found <= LAST_TIMESTAMP:
        place.refuse(f"timestamp: expected milliseconds since 1970, from 0 to {LAST_TIMESTAMP}.")
    return found


def _headers(place: Place, given: Any) -> Headers:
    if not isinstance(given, dict) or not all(value is None or isinstance(value, str) for value in given.values()):
        place.refuse("headers: expected an object whose values are text or null.")
    return tuple((name, None if value is None else value.encode()) for name, value in given.items())
