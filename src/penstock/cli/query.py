"""`penstock query`: queries the stores of a running application, and prints the rows as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from penstock.cli.requests import AdminConnection, RefusedRequestError
from penstock.cli.screen import output_console, print_json, shown, table

_NO_KEY = "no_key"
_SQL_S = 120.0
"""The first query waits until Spark can run queries; then the server allows each some seconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, the first and last epoch they may be of, and whether these are all rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    epochs: tuple[int, int] | None = None
    is_complete: bool = True


def ask_sql(server: AdminConnection, sql: str, limit: int) -> Answer:
    """Return the rows of a SELECT."""
    found = server.post("/sql", {"sql": sql, "limit": limit}, _SQL_S)
    columns = tuple(column["name"] for column in found["columns"])
    return Answer(columns, tuple(map(tuple, found["rows"])), tuple(found["epochs"]), found["is_complete"])


def ask_key(server: AdminConnection, store: str, key: str) -> Answer:
    """Return the entry of a key in a store; no row if there is none."""
    try:
        found = server.get(f"/stores/{quote(store, safe='')}/get?{urlencode({'key': key})}")
    except RefusedRequestError as error:
        if error.reason == _NO_KEY:
            return Answer(("key", "value"), ())
        raise
    epoch = found.pop("epoch")
    return Answer(tuple(found), (tuple(found.values()),), (epoch, epoch))


def print_answer(answer: Answer, form: str) -> None:
    """Print the rows as `table`, `json` or `csv`."""
    if form == "json":
        about = {"epochs": answer.epochs, "is_complete": answer.is_complete}
        print_json({"columns": answer.columns, "rows": answer.rows, **about})
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_cell(value) for value in row] for row in answer.rows)
    else:
        console = output_console()
        console.print(table(answer.columns, answer.rows))
        console.print(shown(_summary(answer), style="dim"))


def _summary(answer: Answer) -> str:
    count = f"{len(answer.rows)} rows" if answer.is_complete else f"the first {len(answer.rows)} rows; there are more (--limit)"
    if answer.epochs is None:
        return count
    first, last = answer.epochs
    return f"{count}, as of epoch {first}" if first == last else f"{count}, as of an epoch between {first} and {last}"


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
