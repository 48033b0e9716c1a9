"""Penstock: Kafka Streams for Python, on Apache Spark.

A topology is a value; a plan is a function of it; an epoch runs it; one Kafka transaction commits the epoch.

    dsl       what users write: StreamsBuilder, KStream, KTable
    topology  frozen nodes and the graph
    plan      topology to stages
    lanes     a lane walks an epoch
    operators what happens to a record
    state     stores, undo, changelog;  timing  windows and durations;  serdes  bytes and values
    testing   TopologyTestDriver
"""

from penstock.app import App
from penstock.dsl import (
    CogroupedKStream,
    EmitStrategy,
    GlobalKTable,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Store,
    StreamsBuilder,
    WindowedKStream,
    key_value_store,
    otherwise,
    session_store,
    timestamped_key_value_store,
    timestamped_window_store,
    versioned_store,
    window_store,
)
from penstock.errors import PenstockError, ProcessingError, SerializationError, StateError, TopologyError
from penstock.processor import (
    Cancellable,
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    ValueTransformer,
)
from penstock.records import Headers, Record, RecordContext, RecordMetadata, ValueAndTimestamp, VersionedRecord, Windowed
from penstock.serdes import (
    Boolean,
    Bytes,
    Float32,
    Float64,
    Int16,
    Int32,
    Int64,
    Json,
    List,
    MsgPack,
    Serde,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
    Void,
)
from penstock.timing import (
    hopping,
    max_bytes,
    max_records,
    session,
    sliding,
    tumbling,
    unbounded,
    unlimited,
    until_time_limit,
    until_window_closes,
)
from penstock.topology import Topology

__all__ = [
    "App",
    "Boolean",
    "Bytes",
    "Cancellable",
    "CogroupedKStream",
    "EmitStrategy",
    "FixedKeyProcessor",
    "Float32",
    "Float64",
    "GlobalKTable",
    "Headers",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "List",
    "MsgPack",
    "PenstockError",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Serde",
    "SerializationError",
    "SessionWindowed",
    "StateError",
    "Store",
    "StreamsBuilder",
    "String",
    "TimeWindowed",
    "Topology",
    "TopologyError",
    "UUIDs",
    "ValueAndTimestamp",
    "ValueTransformer",
    "VersionedRecord",
    "Void",
    "Windowed",
    "WindowedKStream",
    "hopping",
    "key_value_store",
    "max_bytes",
    "max_records",
    "otherwise",
    "session",
    "session_store",
    "sliding",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "tumbling",
    "unbounded",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
    "versioned_store",
    "window_store",
]
