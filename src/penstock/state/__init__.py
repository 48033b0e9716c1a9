"""The state of a shard: typed stores on an epoch's overlay on its lane's engine, with undo data for epochs in flight."""

from penstock.state.bounds import MAX_TIME, after, after_prefix
from penstock.state.bulk import can_hold_all, hold_all, read_all, read_windows, write_all
from penstock.state.by_value import IMMUTABLE, Encoded, giver, holder
from penstock.state.engines.engine import Engine, SpaceBatch
from penstock.state.engines.factory import EngineFactory, EngineKind, Snapshots
from penstock.state.engines.memory import MemoryEngine
from penstock.state.epochs import FORMAT, MARK_LIFE_MS, Head, Mark
from penstock.state.keyvalue import KeyValueReads, KeyValueStore
from penstock.state.lane import LaneState, LaneView, StoreChanges, continue_with, let_threads_read, pending_changes
from penstock.state.overlay import Register, Registers
from penstock.state.raw import OrderedSpace
from penstock.state.rewriting import rewrite
from penstock.state.segments import retention_limit
from penstock.state.sessions import SessionStore
from penstock.state.shard import EPOCH, REGISTERS, ShardState, last_registers, registers_row
from penstock.state.shard_keys import record_key
from penstock.state.shared import Act, SharedKeyValueStore, Write, WriteSerde, write_serde
from penstock.state.specs import Migration, RawLayout, Sharing, StoreKind, StoreSpec, by_query
from penstock.state.store import StateOfStores
from penstock.state.timers import TimerEntry, TimerFront, TimerStore, timer_id
from penstock.state.timestamped import CachedKeyValueStore, TimestampedKeyValueStore, entry_decoder, timestamp_of, value_decoder
from penstock.state.versioned import NEWEST, NOT_PUT, VersionedKeyValueStore
from penstock.state.windows import TimestampedWindowStore, WindowReads, WindowStore

memory_engine = MemoryEngine
"""A new, empty engine without files."""

__all__ = [
    "EPOCH",
    "FORMAT",
    "IMMUTABLE",
    "MARK_LIFE_MS",
    "MAX_TIME",
    "NEWEST",
    "NOT_PUT",
    "REGISTERS",
    "Act",
    "CachedKeyValueStore",
    "Encoded",
    "Engine",
    "EngineFactory",
    "EngineKind",
    "Head",
    "KeyValueReads",
    "KeyValueStore",
    "LaneState",
    "LaneView",
    "Mark",
    "MemoryEngine",
    "Migration",
    "OrderedSpace",
    "RawLayout",
    "Register",
    "Registers",
    "SessionStore",
    "ShardState",
    "SharedKeyValueStore",
    "Sharing",
    "Snapshots",
    "SpaceBatch",
    "StateOfStores",
    "StoreChanges",
    "StoreKind",
    "StoreSpec",
    "TimerEntry",
    "TimerFront",
    "TimerStore",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedKeyValueStore",
    "WindowReads",
    "WindowStore",
    "Write",
    "WriteSerde",
    "after",
    "after_prefix",
    "by_query",
    "can_hold_all",
    "continue_with",
    "entry_decoder",
    "giver",
    "hold_all",
    "holder",
    "last_registers",
    "let_threads_read",
    "memory_engine",
    "pending_changes",
    "read_all",
    "read_windows",
    "record_key",
    "registers_row",
    "retention_limit",
    "rewrite",
    "timer_id",
    "timestamp_of",
    "value_decoder",
    "write_all",
    "write_serde",
]
