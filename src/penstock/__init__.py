"""Penstock: Kafka Streams for Python, on Apache Spark.

A topology is a value; a plan is a function of it; an epoch runs it; one Kafka transaction commits the epoch.

    dsl       what users write: StreamsBuilder, KStream, KTable
    topology  frozen nodes and the graph
    plan      topology to stages
    lanes     a lane walks an epoch
    operators what happens to a record;  expressions  what is computed from its fields
    calls     calls to other systems, many at once
    state     stores, undo, changelog;  timing  windows and durations;  serdes  bytes and values
    errors    what Penstock raises;  handlers  what becomes of records that fail;  records  the words of all
    testing   TopologyTestDriver

Here is what a topology is written with; errors, more serdes and types for annotations are in the modules named above. The
page docs/reference.md lists all of it.
"""

from penstock.app import App
from penstock.calls import CircuitBreaker, ResultCache
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
    WindowedCogroupedKStream,
    WindowedKStream,
    key_value_store,
    otherwise,
    session_store,
    shared_store,
    timestamped_key_value_store,
    timestamped_window_store,
    versioned_store,
    window_store,
)
from penstock.errors import PenstockError
from penstock.expressions import Expression, agg, col, left, right, struct
from penstock.handlers import Failure, dead_letter, log_and_continue, log_and_fail, retry
from penstock.operators.asynchronous import CallContext
from penstock.processor import (
    Cancellable,
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Timer,
    ValueTransformer,
)
from penstock.records import Headers, Record, RecordContext, RecordMetadata, SideOutput, Windowed, on_record
from penstock.runtime.hooks import Plugin
from penstock.serdes import Avro, Int32, JsonSchema, MsgPack, Protobuf, Serde, SessionWindowed, TimeWindowed
from penstock.state import SharedKeyValueStore
from penstock.timing import (
    Suppressed,
    Windows,
    bounded_disorder,
    hopping,
    max_bytes,
    max_records,
    monotonous,
    session,
    sliding,
    tumbling,
    unbounded,
    unlimited,
    until_time_limit,
    until_window_closes,
    watermark_from,
)
from penstock.topology import Topology
from penstock.version import __version__

__all__ = [
    "App",
    "Avro",
    "CallContext",
    "Cancellable",
    "CircuitBreaker",
    "CogroupedKStream",
    "EmitStrategy",
    "Expression",
    "Failure",
    "FixedKeyProcessor",
    "GlobalKTable",
    "Headers",
    "Int32",
    "JsonSchema",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "MsgPack",
    "PenstockError",
    "Plugin",
    "Processor",
    "ProcessorContext",
    "Protobuf",
    "PunctuationType",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "ResultCache",
    "Serde",
    "SessionWindowed",
    "SharedKeyValueStore",
    "SideOutput",
    "Store",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowed",
    "Timer",
    "Topology",
    "ValueTransformer",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "Windows",
    "__version__",
    "agg",
    "bounded_disorder",
    "col",
    "dead_letter",
    "hopping",
    "key_value_store",
    "left",
    "log_and_continue",
    "log_and_fail",
    "max_bytes",
    "max_records",
    "monotonous",
    "on_record",
    "otherwise",
    "retry",
    "right",
    "session",
    "session_store",
    "shared_store",
    "sliding",
    "struct",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "tumbling",
    "unbounded",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
    "versioned_store",
    "watermark_from",
    "window_store",
]
