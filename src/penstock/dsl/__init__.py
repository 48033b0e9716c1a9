"""What users write: a builder, streams and tables, and the few option values worth passing around."""

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.cogrouped import CogroupedKStream, WindowedCogroupedKStream
from penstock.dsl.grouped import EmitStrategy, KGroupedStream, WindowedKStream
from penstock.dsl.grouped_tables import KGroupedTable
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
from penstock.dsl.streams import KStream, otherwise
from penstock.dsl.tables import GlobalKTable, KTable

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
