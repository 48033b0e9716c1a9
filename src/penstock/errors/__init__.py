"""What Penstock raises where no built-in exception says it better.

PenstockError
├── TopologyError          the topology cannot be built: says the cure
├── ProcessingError        user code failed on a record: names node, user's line, topic-partition-offset
├── SerializationError     bytes could not become a value, or a value bytes
└── StateError             a store was asked for something it cannot do
"""

from penstock.errors.exceptions import ATTRIBUTED, PenstockError, ProcessingError, SerializationError, StateError, TopologyError

__all__ = ["ATTRIBUTED", "PenstockError", "ProcessingError", "SerializationError", "StateError", "TopologyError"]
