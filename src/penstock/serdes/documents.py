"""Serdes of structured values, JSON and MessagePack: untyped, or of one type, with validation when bytes are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, overload

import msgspec
import msgspec.inspect as shapes
import orjson

from penstock.errors import SerializationError
from penstock.serdes.plain import JSON_NATIVES, MSGPACK_NATIVES, ChangedTypeError, checker
from penstock.serdes.serde import Serde, is_class, type_name

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]

_CACHE = "__msgspec_cache__"
_CURE = "Use a dataclass, a msgspec.Struct, a Pydantic model or a builtin type, or write a Serde."


class Document(Serde[T]):
    """The common part of `Json` and `MsgPack`: their type, and the conversion of codec errors to `SerializationError`.

    Untyped, they refuse to write what would be read back as another type. `declaring` is how its type can be declared, with
    `{type}` in place of the type; the error says so.
    """

    declaring: str = "value={type}"

    def __init__(self, of: Any = Any) -> None:
        self.of = of
        self._codec()  # fails for a type without a mapping when the topology is built, not at the first record

    def declared_by(self, declaring: str) -> Self:
        """Return an equal serde whose errors say how the type of its values can be declared."""
        other = copy(self)
        other.declaring = declaring
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document) or type(self) is not type(other):
            return NotImplemented
        return bool(self.of == other.of)

    def __hash__(self) -> int:
        return super().__hash__()

    @abstractmethod
    def _codec(self) -> Codec:
        """Encode and decode for `of`; they may raise anything, because they run validators and `__post_init__`."""

    @cached_property
    def serialize(self) -> Callable[[T], bytes]:
        """Encodes a value; if the type is a class, checks that the value is an instance."""
        encode, name = self._codec()[0], repr(self)

        def serialize(value: T) -> bytes:
            try:
                return encode(value)
            except Exception as error:
                what = f"{name} cannot write a value of type {type(value).__name__}: {error}"
                raise SerializationError(what + self._cure(error)) from error

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], T]:
        """Decodes bytes into the type, and validates the result."""
        decode: Callable[[bytes], T]
        (_, decode), name = self._codec(), repr(self)

        def deserialize(data: bytes) -> T:
            try:
                return decode(data)
            except Exception as error:
                raise SerializationError(f"{name} cannot read {len(data)} bytes: {error}") from error

        return deserialize

    def _cure(self, error: Exception) -> str:
        """Return what to do about a value of a type that is not declared."""
        if self.of is not Any:
            return ""
        kind, more = "P", ""
        if isinstance(error, ChangedTypeError):
            kind = "P" if error.is_nested else type_name(error.kind)
            more = ", where P is a dataclass or a TypedDict of all fields" if error.is_nested else ""
            more += f". Or make it a {type_name(error.read_back)}"
        return f". Declare its type: {self.declaring.replace('{type}', kind)}{more}."

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.of is Any else type_name(self.of)})"


class Json(Document[T]):
    """Compact UTF-8 JSON: `Json().serialize({"b": 1, "a": [True]}) == b'{"a":[true],"b":1}'`.

    `Json(Order)` reads and writes a dataclass, `msgspec.Struct`, Pydantic model or any type made of builtins such as
    `list[int]`; what is read is validated. Dicts are sorted by key, so that equal ones have equal bytes, and fields keep the
    order of their class (Pydantic leaves dicts and sets within a model as they come). JSON has no NaN and no infinities: they
    become null.

    Untyped, it writes what it reads back as the same type: dicts with text as keys, lists, `str`, `int`, `float`, `bool` and
    None. It refuses a dataclass, which would become a dict, a tuple, a datetime and the like. An integer of more than 64 bits is
    read as a float.
    """

    @overload
    def __init__(self: Json[Any]) -> None: ...
    @overload
    def __init__(self, of: type[T]) -> None: ...
    @overload
    def __init__(self: Json[Any], of: Any) -> None: ...
    def __init__(self, of: Any = Any) -> None:
        super().__init__(of)

    def _codec(self) -> Codec:
        if self.of is Any:
            return _checked_json(), orjson.loads
        if _mentions_pydantic(self.of):
            return _pydantic_codec(self.of)
        shape = shape_of(self.of)
        if any(is_pydantic(getattr(node, "cls", None)) for node in _nodes(shape)):
            return _pydantic_codec(self.of)
        _refuse_unmapped(self.of, shape)
        encode = msgspec.json.Encoder(order="deterministic").encode
        decoder = msgspec.json.Decoder(self.of)
        _clear_caches(shape)
        return instances_only(shape, encode), decoder.decode


class MsgPack(Document[T]):
    r"""MessagePack, like `Json` but smaller and with raw bytes: `MsgPack().serialize([1, "a"]) == b"\x92\x01\xa1a"`.

    `MsgPack(Order)` takes the same types as `Json(Order)`, except for Pydantic models.
    """

    @overload
    def __init__(self: MsgPack[Any]) -> None: ...
    @overload
    def __init__(self, of: type[T]) -> None: ...
    @overload
    def __init__(self: MsgPack[Any], of: Any) -> None: ...
    def __init__(self, of: Any = Any) -> None:
        super().__init__(of)

    def _codec(self) -> Codec:
        encode = msgspec.msgpack.Encoder(order="deterministic").encode
        if self.of is Any:
            decode = msgspec.msgpack.Decoder().decode
            return _checked(encode, checker(MSGPACK_NATIVES, encode, decode)), decode
        shape = shape_of(self.of)
        _refuse_unmapped(self.of, shape)
        decoder = msgspec.msgpack.Decoder(self.of)
        _clear_caches(shape)
        return instances_only(shape, encode), decoder.decode


def _checked_json() -> Callable[[Any], bytes]:
    """Return how to write untyped JSON."""
    dumps, sorted_by_key = orjson.dumps, orjson.OPT_SORT_KEYS
    natives, all_native = JSON_NATIVES, JSON_NATIVES.issuperset
    check = checker(natives, dumps, orjson.loads)

    def encode(value: Any) -> bytes:
        data = dumps(value, None, sorted_by_key)  # by position: keywords would take as long as sorting
        kind = type(value)
        if kind is dict:  # flat ones are the most frequent, and are not passed on to be checked
            if not all_native(map(type, value.values())):
                check(value)
        elif kind not in natives:
            check(value)
        return data

    return encode


def _checked(encode: Callable[[Any], bytes], check: Callable[[Any], None]) -> Callable[[Any], bytes]:
    def encode_checked(value: Any) -> bytes:
        data = encode(value)
        check(value)
        return data

    return encode_checked


def _pydantic_codec(of: Any) -> Codec:
    from pydantic import TypeAdapter  # noqa: PLC0415 - optional: only users of Pydantic have types that lead here

    adapter = TypeAdapter(of)

    def encode(value: Any) -> bytes:
        # By alias, because validation reads aliases. A field of the wrong type is an error: Pydantic would only warn.
        return adapter.dump_json(value, by_alias=True, warnings="error")

    return _instances_of(of, encode) if is_pydantic(of) else encode, adapter.validate_json


def _mentions_pydantic(of: Any) -> bool:
    return is_pydantic(of) or any(map(_mentions_pydantic, get_args(of)))


def is_pydantic(kind: Any) -> bool:
    """Whether a type is a Pydantic model or dataclass."""
    return hasattr(kind, "__pydantic_validator__")


def shape_of(of: Any) -> shapes.Type:
    """The description of a type by msgspec."""
    try:
        shape = shapes.type_info(of)
    except (TypeError, NameError) as error:
        raise TypeError(f"{type_name(of)} has no mapping to documents ({error}). {_CURE}") from error
    _clear_caches(shape)
    return shape


def _clear_caches(shape: shapes.Type) -> None:
    """Delete msgspec's caches from classes: they can't be pickled, and classes of scripts and notebooks are pickled by value."""
    for node in _nodes(shape):
        kind = getattr(node, "cls", None)
        if is_class(kind) and _CACHE in vars(kind):
            delattr(kind, _CACHE)


def _nodes(shape: shapes.Type) -> Iterator[Any]:
    """Yield the shape and all shapes within it, each once, because types may contain themselves."""
    pending: list[Any] = [shape]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        for name in node.__struct_fields__:
            part = getattr(node, name)
            parts = part if isinstance(part, tuple) else (part,)
            pending.extend(each for each in parts if isinstance(each, (shapes.Type, shapes.Field)))


def _refuse_unmapped(of: Any, shape: shapes.Type) -> None:
    """Raise for a type that msgspec treats as custom, which would fail at the first record."""
    for node in _nodes(shape):
        if isinstance(node, shapes.CustomType):
            unmapped = type_name(node.cls)
            where = "" if node is shape else f" within {type_name(of)}"
            cure = "Use Json(...) for Pydantic models." if is_pydantic(node.cls) else _CURE
            raise TypeError(f"{unmapped}{where} has no mapping to documents. {cure}")


def instances_only(shape: shapes.Type, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Check the class of values if the type is a user's class: msgspec writes any value, and readers would fail."""
    if isinstance(shape, (shapes.DataclassType, shapes.StructType)):
        return _instances_of(get_origin(shape.cls) or shape.cls, encode)
    return encode


def _instances_of(kind: type, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def encode_instance(value: Any) -> Any:
        if isinstance(value, kind):
            return encode(value)
        raise TypeError(f"expected {kind.__name__}")

    return encode_instance
