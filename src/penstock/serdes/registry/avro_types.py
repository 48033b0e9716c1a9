"""Avro schemas of Python types: dataclasses, Structs, TypedDicts and Pydantic models become records.

A schema is written in the order of attributes that Java's `Schema.toString()` has, so that equal schemas have equal text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec
import msgspec.inspect as shapes

from penstock.errors import TopologyError
from penstock.serdes.documents import is_pydantic, shape_of
from penstock.serdes.serde import type_name

_CURE = "Give Avro(...) the schema: schema=."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Mapping[type[shapes.Type], Any] = {
    shapes.NoneType: "null",
    shapes.BoolType: "boolean",
    shapes.IntType: "long",
    shapes.FloatType: "double",
    shapes.StrType: "string",
    shapes.BytesType: "bytes",
    shapes.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    shapes.DateType: {"type": "int", "logicalType": "date"},
    shapes.TimeType: {"type": "long", "logicalType": "time-micros"},
    shapes.UUIDType: {"type": "string", "logicalType": "uuid"},
}
_LISTS = (shapes.ListType, shapes.SetType, shapes.FrozenSetType, shapes.VarTupleType)
_RECORDS = (shapes.StructType, shapes.DataclassType, shapes.TypedDictType, shapes.NamedTupleType)
_NO_DEFAULT = object()


def avro_schema(of: Any, namespace: str = "") -> Any:
    """Return the Avro schema of a type, as JSON would have it; raises for types that Avro has no single form for.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Item:
        ...     name: str
        ...     count: int = 1
        >>> avro_schema(Item, "com.acme")["fields"]
        [{'name': 'name', 'type': 'string'}, {'name': 'count', 'type': 'long', 'default': 1}]
    """
    shape = shapes.CustomType(of) if is_pydantic(of) else shape_of(of)
    return _Records(type_name(of), namespace).of(shape)


class _Records:
    """The schemas of one type's parts; a record that appears again is named, as a schema may define a name only once."""

    def __init__(self, root: str, namespace: str) -> None:
        self._root = root
        self._namespace = namespace
        self._known: dict[str, Any] = {}

    def of(self, shape: shapes.Type) -> Any:
        plain = _PLAIN.get(type(shape))
        if plain is not None:
            return plain
        if isinstance(shape, _LISTS):
            return {"type": "array", "items": self.of(shape.item_type)}
        if isinstance(shape, shapes.DictType) and isinstance(shape.key_type, shapes.StrType):
            return {"type": "map", "values": self.of(shape.value_type)}
        if isinstance(shape, shapes.UnionType):
            return self._union(shape.types)
        if isinstance(shape, shapes.EnumType):
            return self._enum(shape.cls.__name__, [member.value for member in shape.cls])
        if isinstance(shape, shapes.CustomType) and is_pydantic(shape.cls):
            return self._model(shape.cls)
        if isinstance(shape, _RECORDS) and not getattr(shape, "array_like", False):
            return self._record(shape.cls, [(each.encode_name, each.type, _default(each)) for each in _in_order(shape)])
        raise self._unmapped(shape)

    def _union(self, types: tuple[shapes.Type, ...], default: Any = _NO_DEFAULT) -> Any:
        """Return a union. Its default must be of its first branch: None if there is one, unless the default is not None."""
        parts = sorted(types, key=lambda part: isinstance(part, shapes.NoneType) != (default in (None, _NO_DEFAULT)))
        records = [part for part in types if isinstance(part, (*_RECORDS, shapes.CustomType))]
        if len(records) > 1:
            raise TopologyError(f"{self._root}: Avro cannot tell the classes of a union apart by their fields alone. {_CURE}")
        return [self.of(part) for part in parts]

    def _model(self, model: Any) -> Any:
        fields = []
        for name, info in model.model_fields.items():
            default = _NO_DEFAULT if info.is_required() else info.get_default(call_default_factory=True)
            annotation = info.annotation
            shape = shapes.CustomType(annotation) if is_pydantic(annotation) else shape_of(annotation)
            fields.append((info.serialization_alias or info.alias or name, shape, default))
        return self._record(model, fields)

    def _record(self, kind: Any, fields: list[tuple[str, shapes.Type, Any]]) -> Any:
        name = self._named(kind.__name__, kind)
        if name is None:
            return kind.__name__
        return {**self._head("record", name), "fields": [self._field(*each) for each in fields]}

    def _field(self, name: str, shape: shapes.Type, default: Any) -> dict[str, Any]:
        self._check(name)
        of = self._union(shape.types, default) if isinstance(shape, shapes.UnionType) else self.of(shape)
        field = {"name": name, "type": of}
        if default is not _NO_DEFAULT:
            field["default"] = self._default(name, default)
        return field

    def _default(self, name: str, default: Any) -> Any:
        try:
            plain = msgspec.to_builtins(default)
        except TypeError:
            plain = _NO_DEFAULT
        if plain is None or isinstance(plain, (bool, int, float, str, list, dict)):
            return plain
        raise TopologyError(f"{self._root}: the default of field {name!r} has no form in an Avro schema. {_CURE}")

    def _enum(self, name: str, values: list[Any]) -> Any:
        if not all(isinstance(value, str) and _NAME.fullmatch(value) for value in values):
            raise TopologyError(f"{self._root}: the values of enum {name} must be names, as Avro's symbols are. {_CURE}")
        fresh = self._named(name, tuple(values))
        return name if fresh is None else {**self._head("enum", fresh), "symbols": values}

    def _named(self, name: str, what: Any) -> str | None:
        """Return the name of a new definition; None if the schema has it already."""
        self._check(name)
        if name not in self._known:
            self._known[name] = what
            return name
        if self._known[name] != what:
            raise TopologyError(f"{self._root}: two types are called {name}, which a schema cannot tell apart. {_CURE}")
        return None

    def _head(self, kind: str, name: str) -> dict[str, Any]:
        head = {"type": kind, "name": name}
        if self._namespace and len(self._known) == 1:  # those within it have its namespace
            head["namespace"] = self._namespace
        return head

    def _check(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise TopologyError(f"{self._root}: {name!r} is not a name in Avro: use letters, digits and '_'. {_CURE}")

    def _unmapped(self, shape: shapes.Type) -> TopologyError:
        what = type_name(getattr(shape, "cls", None) or type(shape).__name__.removesuffix("Type"))
        return TopologyError(f"{self._root}: {what} has no single form in Avro. {_CURE}")


def _in_order(shape: Any) -> list[shapes.Field]:
    """Return the fields as they were declared, which is not how msgspec lists those of a TypedDict."""
    declared = list(get_type_hints(shape.cls)) if isinstance(shape, shapes.TypedDictType) else []
    return sorted(shape.fields, key=lambda each: declared.index(each.name) if declared else 0)


def _default(field: shapes.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return _NO_DEFAULT
