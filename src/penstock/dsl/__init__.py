"""The DSL that users write: the builder, the handles of streams and tables, and the stores they name."""

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.handles import (
    CogroupedKStream,
    GlobalKTable,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    WindowedCogroupedKStream,
    WindowedKStream,
)
from penstock.dsl.stateless import otherwise
from penstock.dsl.stores import (
    Store,
    key_value_store,
    session_store,
    shared_store,
    timestamped_key_value_store,
    timestamped_window_store,
    versioned_store,
    window_store,
)
from penstock.dsl.windowed_aggregations import EmitStrategy

__all__ = [
    "CogroupedKStream",
    "EmitStrategy",
    "GlobalKTable",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Store",
    "StreamsBuilder",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "key_value_store",
    "otherwise",
    "session_store",
    "shared_store",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "versioned_store",
    "window_store",
]
