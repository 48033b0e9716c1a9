"""The value that a document of a sample file means to a serde: its own type's, so that the serde can write it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import orjson

from penstock.errors import SerializationError
from penstock.extras import extra
from penstock.records import Windowed
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
    Protobuf,
    Serde,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
)
from penstock.serdes.documents import is_pydantic
from penstock.serdes.registry.text_serde import TextSerde

_TYPES: dict[type[Serde[Any]], type] = {
    String: str,
    Int16: int,
    Int32: int,
    Int64: int,
    Float32: float,
    Float64: float,
    Boolean: bool,
    UUIDs: UUID,
}


def value_of(serde: Serde[Any], document: Any, is_text: bool = False) -> Any:
    """Return what a document means to a serde; raise `SerializationError` if it means nothing.

    Text, numbers, booleans and UUIDs are JSON's; bytes are text, in UTF-8. A dataclass, Struct or model is an object of its
    fields. With `is_text`, numbers may be text. A serde of the user's own gets the document as it is.
    """
    if document is None:
        return None
    try:
        return _meant(serde, document, is_text)
    except SerializationError:
        raise
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise SerializationError(f"{serde!r}: {error}") from error


def _meant(serde: Serde[Any], document: Any, is_text: bool) -> Any:
    kind = _TYPES.get(type(serde))
    if kind is not None:
        return msgspec.convert(document, kind, strict=not is_text)
    if isinstance(serde, Bytes):
        return msgspec.convert(document, str).encode()
    if isinstance(serde, List):
        return [value_of(serde.inner, each, is_text) for each in msgspec.convert(document, list)]
    if isinstance(serde, (TimeWindowed, SessionWindowed)):
        given = msgspec.convert(document, _Window)
        return Windowed(value_of(serde.inner, given.key), given.start, given.end)
    if isinstance(serde, (Json, MsgPack)):
        return document if serde.of is Any else _typed(serde.of, document, is_text)
    if isinstance(serde, TextSerde):
        return document if serde.of in (Any, dict) else _typed(serde.of, document, is_text)
    if isinstance(serde, Protobuf):
        return _message(serde.of, document)
    return document


class _Window(msgspec.Struct, forbid_unknown_fields=True):
    """How a file writes a windowed key."""

    key: Any
    start: int
    end: int


def _typed(of: Any, document: Any, is_text: bool) -> Any:
    data = orjson.dumps(document)
    if is_text and not is_pydantic(of):  # Pydantic reads numbers from text by itself
        return msgspec.json.decode(data, type=of, strict=False)
    return Json(of).deserialize(data)


def _message(of: Any, document: Any) -> Any:
    form = extra("protobuf", "google.protobuf.json_format")
    try:
        return form.ParseDict(document, of())
    except form.ParseError as error:
        raise ValueError(str(error)) from error
