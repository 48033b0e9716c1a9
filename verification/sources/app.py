"""The application under test: `python -m verification.sources.app`; the environment says where its input is."""

from __future__ import annotations

import os
from typing import Any

from penstock import App, KStream, StreamsBuilder, tumbling


def orders(builder: StreamsBuilder, name: str) -> KStream[str, dict[str, Any]]:
    """All orders: from a topic, or from files and then from a topic."""
    files = os.environ.get("SOURCES_FILES")
    if files is None:
        return builder.stream(f"{name}-orders", key=str, value=dict)
    return builder.read(
        lambda spark: spark.read.parquet(files),
        lambda row: (row["customer"], {"number": row["number"], "amount": row["amount"]}, row["at"]),
        order_by="number",
        history=f"{name}-history",
        live=f"{name}-orders",
        key=str,
        value=dict,
    )


def app(name: str) -> App:
    """Totals per customer, and counts per customer and minute."""
    builder = StreamsBuilder()
    by_customer = orders(builder, name).group_by_key()
    by_customer.aggregate(dict, _with_order, store="totals").to_stream().to(f"{name}-totals", value=dict)
    by_customer.windowed_by(tumbling("1m", grace="1h")).count(store="minutes")
    return App(name, builder.build())


def _with_order(customer: str, order: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
    return {"count": total.get("count", 0) + 1, "sum": total.get("sum", 0) + order["amount"], "last": order["number"]}


if __name__ == "__main__":
    os.environ["PENSTOCK_FAULT_PID"] = str(os.getpid())  # a lane that reaches a fault point kills the application
    app(os.environ["SOURCES_NAME"]).run(until=os.environ.get("SOURCES_UNTIL"))
