"""The serde for a type that a user gives as `key=` or `value=`."""

from __future__ import annotations

import types
from typing import Any, TypeVar, Union, get_args, get_origin, overload
from uuid import UUID

from penstock.records import Windowed
from penstock.serdes.documents import Json
from penstock.serdes.primitives import Boolean, Bytes, Float64, Int64, String, UUIDs, Void
from penstock.serdes.serde import Serde, is_class, type_name

T = TypeVar("T")

_SERDES: dict[Any, Serde[Any]] = {
    str: String(),
    bytes: Bytes(),
    int: Int64(),
    float: Float64(),
    bool: Boolean(),
    UUID: UUIDs(),
    types.NoneType: Void(),
    dict: Json(),
    list: Json(),
    object: Json(),
    Any: Json(),
    None: Json(),
}


@overload
def serde_of(kind: Serde[T]) -> Serde[T]: ...
@overload
def serde_of(kind: type[T]) -> Serde[T]: ...
@overload
def serde_of(kind: Any) -> Serde[Any]: ...
def serde_of(kind: Any) -> Serde[Any]:
    """Return the serde for a type, or the serde itself: `serde_of(int) == Int64()`.

    `str`, `bytes`, `int`, `float`, `bool` and `uuid.UUID` are Java's String, ByteArray, Long, Double, Boolean and UUID.
    `dict`, `list`, `Any` and None are untyped JSON; dataclasses, Structs, Pydantic models, `list[int]` and the like are JSON
    of that type. `T | None` is `T`, because null needs no serde.
    """
    if isinstance(kind, Serde):
        return kind
    _refuse_mistakes(kind)
    known = _known(kind)
    if known is not None:
        return known
    if hasattr(kind, "__supertype__"):  # a typing.NewType
        return serde_of(kind.__supertype__)
    if get_origin(kind) in (Union, types.UnionType):
        members = [member for member in get_args(kind) if member is not types.NoneType]
        if len(members) == 1:
            return serde_of(members[0])
    return Json(kind)


def _known(kind: Any) -> Serde[Any] | None:
    try:
        return _SERDES.get(kind)
    except TypeError:  # not hashable, as an Annotated type may be
        return None


def _refuse_mistakes(kind: Any) -> None:
    """Raise for types that have a JSON mapping which the user surely does not want."""
    if is_class(kind) and issubclass(kind, Serde):
        raise TypeError(f"{kind.__name__} is a Serde class. Write {kind.__name__}(...).")
    if kind is Windowed or get_origin(kind) is Windowed:
        raise TypeError("Windowed keys need their key's serde. Use TimeWindowed(key, window_size_ms) or SessionWindowed(key).")
    if kind in (bytearray, memoryview):
        raise TypeError(f"{type_name(kind)} cannot be read back from a topic. Use bytes.")
