"""Serdes: bytes to values and back, byte-compatible with Kafka's Java serdes where Java has one."""

from penstock.errors import SerializationError
from penstock.serdes.documents import Json, MsgPack
from penstock.serdes.lists import List
from penstock.serdes.of_type import serde_of
from penstock.serdes.primitives import Boolean, Bytes, Float32, Float64, Int16, Int32, Int64, String, UUIDs, Void
from penstock.serdes.registry import Avro, JsonSchema, Protobuf, Reference
from penstock.serdes.serde import Serde
from penstock.serdes.tables import ChangeSerde, ValueAndTimestampSerde
from penstock.serdes.windowed import SessionWindowed, TimeWindowed

__all__ = [
    "Avro",
    "Boolean",
    "Bytes",
    "ChangeSerde",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "JsonSchema",
    "List",
    "MsgPack",
    "Protobuf",
    "Reference",
    "Serde",
    "SerializationError",
    "SessionWindowed",
    "String",
    "TimeWindowed",
    "UUIDs",
    "ValueAndTimestampSerde",
    "Void",
    "serde_of",
]
