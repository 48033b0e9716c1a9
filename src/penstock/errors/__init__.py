"""What Penstock raises where no built-in exception fits better. The number is the exit code of a process that ends with it.

PenstockError                        1
├── ConfigError                      2   a setting is missing or invalid
├── TopologyError                    3   the topology cannot be built: names the cure
│   └── IncompatibleTopologyError    4   the committed state belongs to another topology: says what changed
├── ProcessingError                 10   user code failed on a record: names node, user's line, topic-partition-offset
├── CircuitOpenError                10   a call was not made, because earlier calls have failed
├── LateRecordError                 10   a record is older than the watermark, and its source's policy is to fail
├── SerializationError              10   a serde cannot read bytes or write a value
├── ProductionError                 11   a record cannot be written to its topic
├── TopicError                      12   a topic is missing, or not as it must be
├── StateError                      13   a store does not support an operation, or is not at the epoch it should be at
│   └── LaneMovedError                   the lane runs on another host, or has to be restored there
├── QueryError                      14   a store cannot answer a query
│   ├── UnknownStoreError                no store has that name: lists the stores
│   ├── NotReadyError                    the application restores, has ended, or has not reached that epoch
│   └── QueryTimeoutError                the query took too long
├── FencedError                     20   another instance has taken over
├── CommitError                     21   a transaction timed out or was aborted
├── BrokerError                     22   the brokers were unreachable for too long
├── StalledError                    23   an epoch did not finish in time
├── EpochTooLargeError              24   an epoch without records exceeds what the machine can process
└── RegistryError                   25   the schema registry did not answer for too long, or denies access
"""

from penstock.errors.exceptions import (
    ATTRIBUTED,
    BrokerError,
    CircuitOpenError,
    CommitError,
    ConfigError,
    EpochTooLargeError,
    FencedError,
    IncompatibleTopologyError,
    LaneMovedError,
    LateRecordError,
    NotReadyError,
    PenstockError,
    ProcessingError,
    ProductionError,
    QueryError,
    QueryTimeoutError,
    RegistryError,
    SerializationError,
    StalledError,
    StateError,
    TopicError,
    TopologyError,
    UnknownStoreError,
)
from penstock.errors.raised import FAILURES, Raised, failure_of, shown, text_of

__all__ = [
    "ATTRIBUTED",
    "FAILURES",
    "BrokerError",
    "CircuitOpenError",
    "CommitError",
    "ConfigError",
    "EpochTooLargeError",
    "FencedError",
    "IncompatibleTopologyError",
    "LaneMovedError",
    "LateRecordError",
    "NotReadyError",
    "PenstockError",
    "ProcessingError",
    "ProductionError",
    "QueryError",
    "QueryTimeoutError",
    "Raised",
    "RegistryError",
    "SerializationError",
    "StalledError",
    "StateError",
    "TopicError",
    "TopologyError",
    "UnknownStoreError",
    "failure_of",
    "shown",
    "text_of",
]
