"""What Penstock raises where no built-in exception says it better. The number is the exit code of a process that ends with it.

PenstockError                        1
├── ConfigError                      2   a setting is missing or cannot work
├── TopologyError                    3   the topology cannot be built: says the cure
│   └── IncompatibleTopologyError    4   the committed state belongs to another topology: says what changed
├── ProcessingError                 10   user code failed on a record: names node, user's line, topic-partition-offset
├── CircuitOpenError                10   a call was not made: those before it have failed
├── LateRecordError                 10   a record came after the watermark, and its source's policy is to fail
├── SerializationError              10   bytes could not become a value, or a value bytes
├── ProductionError                 11   a record cannot be written to its topic
├── TopicError                      12   a topic is missing or is not what is needed
├── StateError                      13   a store cannot do what it was asked, or is not where it should be
├── QueryError                      14   a question that a store cannot answer
│   ├── UnknownStoreError                there is no such store: names those there are
│   ├── NotReadyError                    it restores, has ended, or has not come to that epoch
│   └── QueryTimeoutError                it took too long
├── FencedError                     20   another instance has taken over
├── CommitError                     21   a transaction timed out or was aborted
├── BrokerError                     22   the brokers were out of reach for too long
├── StalledError                    23   an epoch has not come to its end within its time
└── EpochTooLargeError              24   an epoch without records is too much for the machine
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
    LateRecordError,
    NotReadyError,
    PenstockError,
    ProcessingError,
    ProductionError,
    QueryError,
    QueryTimeoutError,
    SerializationError,
    StalledError,
    StateError,
    TopicError,
    TopologyError,
    UnknownStoreError,
)

__all__ = [
    "ATTRIBUTED",
    "BrokerError",
    "CircuitOpenError",
    "CommitError",
    "ConfigError",
    "EpochTooLargeError",
    "FencedError",
    "IncompatibleTopologyError",
    "LateRecordError",
    "NotReadyError",
    "PenstockError",
    "ProcessingError",
    "ProductionError",
    "QueryError",
    "QueryTimeoutError",
    "SerializationError",
    "StalledError",
    "StateError",
    "TopicError",
    "TopologyError",
    "UnknownStoreError",
]
