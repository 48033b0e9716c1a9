"""Everything Penstock raises.

PenstockError
├── TopologyError          the topology cannot be built: names the user's line and the cure
├── ProcessingError        user code failed on a record: names node, user's line, topic-partition-offset
├── SerializationError     bytes could not become a value, or a value bytes
└── StateError             a store was asked for something it cannot do
"""

from penstock.errors.exceptions import ATTRIBUTED, PenstockError, ProcessingError, SerializationError, StateError, TopologyError

__all__ = ["ATTRIBUTED", "PenstockError", "ProcessingError", "SerializationError", "StateError", "TopologyError"]
