"""Serdes with a schema registry, in Confluent's wire format: `Avro`, `JsonSchema`, `Protobuf`.

They ask the registry when the first record of a schema comes, once per process. The libraries of the formats are extras, and are
imported when a serde is created.
"""

from penstock.serdes.registry.avro import Avro
from penstock.serdes.registry.json_schema import JsonSchema
from penstock.serdes.registry.protobuf import Protobuf
from penstock.serdes.registry.schemas import Reference, Schema, SchemaKind

__all__ = ["Avro", "JsonSchema", "Protobuf", "Reference", "Schema", "SchemaKind"]
