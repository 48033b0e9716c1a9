"""`penstock query`: a question to the stores of a running application, and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock.cli.requests import AdminServer, RefusedRequestError
from penstock.cli.screen import answers, print_json, shown, table


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, and the epoch they are of."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    epoch: int | None


def ask_sql(server: AdminServer, sql: str, limit: int) -> Answer:
    """The rows of a select."""
    found = server.post("/sql", {"sql": sql, "limit": limit})
    return Answer(tuple(found["columns"]), tuple(tuple(row) for row in found["rows"]), found.get("epoch"))


def ask_key(server: AdminServer, store: str, key: str) -> Answer:
    """What a store has for a key; no row if it has nothing."""
    found = server.get(f"/stores/{quote(store, safe='')}/{quote(key, safe='')}")
    if not isinstance(found, dict) or "value" not in found:
        raise RefusedRequestError(f"/stores/{store}: the answer has no value")
    row = (key, found["value"])
    return Answer(("key", "value"), () if found["value"] is None else (row,), found.get("epoch"))


def print_answer(answer: Answer, form: str) -> None:
    """Print it as `table`, `json` or `csv`."""
    if form == "json":
        print_json({"columns": answer.columns, "rows": answer.rows, "epoch": answer.epoch})
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_cell(value) for value in row] for row in answer.rows)
    else:
        console = answers()
        console.print(table(answer.columns, answer.rows))
        console.print(shown(f"{len(answer.rows)} rows, as of epoch {answer.epoch}", style="dim"))


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
