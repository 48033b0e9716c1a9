"""The measured topologies on Penstock, with expressions over columns wherever the DSL accepts them.

Usage: columns_app.py TOPOLOGY SOURCE,SOURCE SINK APPLICATION_ID BOOTSTRAP_SERVERS STATE_DIR LANES
"""

from __future__ import annotations

from typing import Any

import penstock
from benchmarks.applications.penstock_app import Topologies, at_start, main
from penstock import hopping, session, until_window_closes
from penstock.serdes import Json

_api: Any = penstock
"""Not every version has expressions: the bench leaves this program out if there are none."""


def stateless(builder: Any, sink: str, source: str) -> None:
    """(A) Filter and map."""
    kept = builder.stream(source, value=dict).filter(_api.col("amount") % 2 == 0)
    fields = {name: _api.col(name) for name in ("id", "user", "note")}
    kept.map_values(_api.struct(**fields, amount=_api.col("amount") * 2)).to(sink)


def totals(builder: Any, sink: str, source: str) -> None:
    """(B, H) Count and sum by key."""
    builder.stream(source, value=dict).group_by_key().agg(**_count_and_sum("amount"), store="totals").to_stream().to(sink)


def words(builder: Any, sink: str, source: str) -> None:
    """(C) Word count."""
    separate = builder.stream(source, value=str).flat_map_values(str.split)
    separate.group_by(_api.col(), key=str).count(store="words").to_stream().to(sink, value=Json())


def enriched(builder: Any, sink: str, orders: str, users: str) -> None:
    """(D) Stream–table join, then count and sum by region."""
    sale = _api.struct(region=_api.right("region"), sale=_api.left("amount") * _api.right("rate"))
    sales = builder.stream(orders, value=dict).join(builder.table(users, value=dict, store="users"), sale)
    sales.group_by(_api.col("region"), key=str).agg(**_count_and_sum("sale"), store="regions").to_stream().to(sink)


def foreign_keys(builder: Any, sink: str, orders: str, customers: str) -> None:
    """(E) Foreign-key join."""
    joined = builder.table(orders, value=dict, store="orders").join(
        builder.table(customers, value=dict, store="customers"),
        _api.struct(amount=_api.left("amount"), name=_api.right("name")),
        on=_api.col("customer"),
    )
    joined.to_stream().to(sink)


def hopping_windows(builder: Any, sink: str, source: str) -> None:
    """(F) Count and sum by key in hopping windows."""
    windows = builder.stream(source, value=dict).group_by_key().windowed_by(hopping("10s", "5s", grace="30s"))
    windows.agg(**_count_and_sum("amount"), store="windows").to_stream(at_start, key=str).to(sink)


def sessions(builder: Any, sink: str, source: str) -> None:
    """(G) Count and sum of closed sessions."""
    windows = builder.stream(source, value=dict).group_by_key().windowed_by(session("5s", grace="1s"))
    closed = windows.agg(**_count_and_sum("amount"), store="sessions").suppress(until_window_closes())
    closed.to_stream(at_start, key=str).to(sink)


def _count_and_sum(field: str) -> dict[str, Any]:
    return {"n": _api.agg.count(), "total": _api.agg.sum(_api.col(field))}


TOPOLOGIES: Topologies = {
    "stateless": stateless,
    "totals": totals,
    "words": words,
    "enriched": enriched,
    "foreign-keys": foreign_keys,
    "hopping": hopping_windows,
    "sessions": sessions,
}

if __name__ == "__main__":
    main(TOPOLOGIES)
