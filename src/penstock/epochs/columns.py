"""Keys and values as Arrow columns: typed if their serde determines a type, otherwise JSON as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as shapes
import pyarrow as pa

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
)
from penstock.serdes.documents import shape_of

_DEEPEST = 8
_PLAIN: Mapping[type[Serde[Any]], pa.DataType] = {
    String: pa.string(),
    Bytes: pa.binary(),
    Int16: pa.int16(),
    Int32: pa.int32(),
    Int64: pa.int64(),
    Float32: pa.float32(),
    Float64: pa.float64(),
    Boolean: pa.bool_(),
}
_PLAIN_SHAPES: Mapping[type[shapes.Type], pa.DataType] = {
    shapes.BoolType: pa.bool_(),
    shapes.IntType: pa.int64(),
    shapes.FloatType: pa.float64(),
    shapes.StrType: pa.string(),
    shapes.BytesType: pa.binary(),
    shapes.DateTimeType: pa.string(),
    shapes.DateType: pa.string(),
    shapes.TimeType: pa.string(),
    shapes.UUIDType: pa.string(),
    shapes.DecimalType: pa.string(),
}


class Column(NamedTuple):
    """An Arrow type, and the conversion of values for it."""

    type: pa.DataType
    convert: Callable[[Any], Any]


def column_of(serde: Serde[Any]) -> Column:
    """Return the column for the values of a serde.

    Example:
        >>> column_of(Int64()).type, column_of(Json(list[int])).type, column_of(Json()).type
        (DataType(int64), ListType(list<item: int64>), DataType(string))
    """
    plain = _PLAIN.get(type(serde))
    if plain is not None:
        return Column(plain, _same)
    if isinstance(serde, UUIDs):
        return Column(pa.string(), str)
    if isinstance(serde, (TimeWindowed, SessionWindowed)):
        inner = column_of(serde.inner)
        fields = [("key", inner.type), ("start", pa.int64()), ("end", pa.int64())]
        return Column(pa.struct(fields), lambda key: {"key": inner.convert(key.key), "start": key.start, "end": key.end})
    if isinstance(serde, List):
        inner = column_of(serde.inner)
        convert = inner.convert
        return Column(pa.list_(inner.type), lambda values: [None if value is None else convert(value) for value in values])
    if isinstance(serde, (Json, MsgPack)):
        return _document(serde.of)
    return _TEXT


def json_text(value: Any) -> str:
    """Return a value as JSON; objects that JSON cannot represent as their `repr`."""
    return msgspec.json.encode(value, enc_hook=shown).decode()


def shown(value: Any) -> Any:
    """Return the JSON replacement for an object that msgspec does not know: a Pydantic model's fields, or its `repr`."""
    dump = getattr(value, "model_dump", None)
    return repr(value) if dump is None else dump(mode="json")


def _same(value: Any) -> Any:
    return value


_TEXT = Column(pa.string(), json_text)


def _document(of: Any) -> Column:
    if of is Any:
        return _TEXT
    try:
        found = _of_shape(shape_of(of), 0)
    except TypeError:  # a Pydantic model
        found = None
    if found is None:
        return _TEXT
    convert = found.convert
    return Column(found.type, lambda value: convert(msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)))


def _of_shape(shape: shapes.Type, depth: int) -> Column | None:
    """Return the column for plain objects of a shape; None if it has no single type."""
    plain = _PLAIN_SHAPES.get(type(shape))
    if plain is not None:
        return Column(plain, _same)
    if depth == _DEEPEST:  # or a type that contains itself
        return None
    if isinstance(shape, shapes.UnionType):
        others = [each for each in shape.types if not isinstance(each, shapes.NoneType)]
        return _of_shape(others[0], depth) if len(others) == 1 else None
    if isinstance(shape, (shapes.ListType, shapes.SetType, shapes.FrozenSetType, shapes.VarTupleType)):
        item = _part(shape.item_type, depth)
        return Column(pa.list_(item.type), lambda values: [item.convert(value) for value in values])
    if isinstance(shape, shapes.DictType) and isinstance(shape.key_type, shapes.StrType):
        part = _part(shape.value_type, depth)
        return Column(pa.map_(pa.string(), part.type), lambda value: [(name, part.convert(each)) for name, each in value.items()])
    if isinstance(shape, shapes.StructType) and (shape.tag is not None or shape.array_like):
        return None
    if isinstance(shape, (shapes.StructType, shapes.DataclassType, shapes.TypedDictType)) and shape.fields:
        return _struct({field.encode_name: _part(field.type, depth) for field in shape.fields})
    return None


def _struct(parts: Mapping[str, Column]) -> Column:
    converts = {name: part.convert for name, part in parts.items()}

    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each(value.get(name)) for name, each in converts.items()}

    return Column(pa.struct([(name, part.type) for name, part in parts.items()]), convert)


def _part(shape: shapes.Type, depth: int) -> Column:
    """Return the column for a part of a document, which may be null."""
    kind, convert = _of_shape(shape, depth + 1) or _TEXT
    return Column(kind, lambda value: None if value is None else convert(value))
