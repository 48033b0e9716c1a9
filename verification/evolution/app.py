"""The application under test: `python -m verification.evolution.app`; the environment says which version of it."""

from __future__ import annotations

import os
from typing import Any

from penstock import App, Store, StreamsBuilder

CONVERTED = 1_000_000
RENAMED = 3


def converted(total: dict[str, Any]) -> dict[str, Any]:
    """A total of the second version: converted twice it would be another one."""
    return {"count": total["count"], "sum": total["sum"] + CONVERTED}


def app(name: str, version: int) -> App:
    """Totals per key. The third version has another name for them."""
    builder = StreamsBuilder()
    store = Store("totals", value=dict, version=version, migrate=converted if version > 1 else None)
    if version == RENAMED:
        store = Store("amounts", value=dict, version=2, migrate=converted, renamed_from="totals")
    builder.stream(f"{name}-in", key=str, value=int).group_by_key().aggregate(_nothing, _added, store=store)
    return App(name, builder.build())


def _nothing() -> dict[str, Any]:
    return {"count": 0, "sum": 0}


def _added(key: str, amount: int, total: dict[str, Any]) -> dict[str, Any]:
    return {"count": total["count"] + 1, "sum": total["sum"] + amount}


if __name__ == "__main__":
    os.environ["PENSTOCK_FAULT_PID"] = str(os.getpid())
    app(os.environ["EVOLUTION_NAME"], int(os.environ["EVOLUTION_VERSION"])).run(until="latest")
