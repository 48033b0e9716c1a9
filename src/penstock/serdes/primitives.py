"""Serdes of single values, byte for byte those of Kafka's Java clients: numbers, text, raw bytes, UUIDs, booleans."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.errors import SerializationError
from penstock.serdes.serde import Serde

_LONG_MAX = 2**63 - 1
_OF_SIZE = {2: "Int16()", 4: "Int32(), Float32()", 8: "int, float"}
"""What a producer has probably written if a number has another size than expected."""


def _packed(name: str, layout: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    packer = struct.Struct(layout)
    pack, unpack, size = packer.pack, packer.unpack, packer.size

    def serialize(value: Any) -> bytes:
        try:
            return pack(value)
        except (struct.error, OverflowError, TypeError) as error:
            raise SerializationError(f"{name} cannot write a value of type {type(value).__name__}: {error}") from error

    def deserialize(data: bytes) -> Any:
        try:
            return unpack(data)[0]
        except struct.error as error:
            likely = f" Serdes of that size: {_OF_SIZE[len(data)]}." if len(data) in _OF_SIZE else ""
            raise SerializationError(f"{name} expects exactly {size} bytes, got {len(data)}.{likely}") from error

    return serialize, deserialize


_write_int16, _read_int16 = _packed("Int16", ">h")
_write_int32, _read_int32 = _packed("Int32", ">i")
_write_int64, _read_int64 = _packed("Int64", ">q")
_write_float32, _read_float32 = _packed("Float32", ">f")
_write_float64, _read_float64 = _packed("Float64", ">d")


class Int16(Serde[int]):
    r"""Two bytes, Java's `Short`: `Int16().serialize(1) == b"\x00\x01"`."""

    identity = True
    is_canonical = True
    serialize: Callable[[int], bytes] = staticmethod(_write_int16)
    deserialize: Callable[[bytes], int] = staticmethod(_read_int16)


class Int32(Serde[int]):
    r"""Four bytes, Java's `Integer`: `Int32().serialize(1) == b"\x00\x00\x00\x01"`."""

    identity = True
    is_canonical = True
    serialize: Callable[[int], bytes] = staticmethod(_write_int32)
    deserialize: Callable[[bytes], int] = staticmethod(_read_int32)


class Int64(Serde[int]):
    r"""Eight bytes, Java's `Long`, and what `int` means: `Int64().deserialize(bytes(7) + b"\x01") == 1`."""

    identity = True
    is_canonical = True
    serialize: Callable[[int], bytes] = staticmethod(_write_int64)
    deserialize: Callable[[bytes], int] = staticmethod(_read_int64)


class Float32(Serde[float]):
    r"""Four bytes, Java's `Float`; rounds to that precision: `Float32().serialize(1.0) == b"\x3f\x80\x00\x00"`."""

    serialize: Callable[[float], bytes] = staticmethod(_write_float32)
    deserialize: Callable[[bytes], float] = staticmethod(_read_float32)


class Float64(Serde[float]):
    """Eight bytes, Java's `Double`, and what `float` means: `Float64().deserialize(bytes(8)) == 0.0`.

    Not an `identity`: `0.0 == -0.0` have different bytes, and a NaN does not equal itself.
    """

    is_canonical = True
    serialize: Callable[[float], bytes] = staticmethod(_write_float64)
    deserialize: Callable[[bytes], float] = staticmethod(_read_float64)


_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _write_string(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        # Java uses UTF-16: two adjacent halves of a pair are one character, any other half is written as "?".
        units = value.encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", "surrogatepass").encode(errors="replace")
    except AttributeError as error:
        raise SerializationError(f"String expects str, got {type(value).__name__}.") from error


def _read_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java and Python replace malformed bytes alike, except an encoded surrogate: one U+FFFD in Java, one per byte in Python.
        return _ENCODED_SURROGATE.sub(b"\xff", data).decode(errors="replace")


class String(Serde[str]):
    r"""UTF-8 text, and what `str` means: `String().serialize("añ") == b"a\xc3\xb1"`.

    As lenient as Java's: malformed bytes are read as U+FFFD, lone surrogates are written as `?`. (Only such strings, which no
    UTF-8 input can contain, break `identity`.)
    """

    identity = True
    serialize: Callable[[str], bytes] = staticmethod(_write_string)
    deserialize: Callable[[bytes], str] = staticmethod(_read_string)


def _write_bytes(value: bytes) -> bytes:
    if value.__class__ is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationError(f"Bytes expects bytes, got {type(value).__name__}.")


class Bytes(Serde[bytes]):
    """The bytes themselves, and what `bytes` means: `Bytes().deserialize(b"raw") == b"raw"`."""

    identity = True
    is_canonical = True
    serialize: Callable[[bytes], bytes] = staticmethod(_write_bytes)
    deserialize: Callable[[bytes], bytes] = staticmethod(_write_bytes)


_CANONICAL_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_JAVA_UUID = re.compile(rb"(?=.{9,36}\Z)" + rb"-".join([rb"(\+?[0-9a-fA-F]+)"] * 5))
_JAVA_UUID_WIDTHS = (32, 16, 16, 16, 48)


def _write_uuid(value: UUID) -> bytes:
    if isinstance(value, UUID):
        return str(value).encode()
    raise SerializationError(f"UUIDs expects uuid.UUID, got {type(value).__name__}.")


def _read_uuid(data: bytes) -> UUID:
    if _CANONICAL_UUID.fullmatch(data):
        return UUID(int=int(data.replace(b"-", b""), 16))
    # Java also reads groups of any length that fit a long, and keeps their low bits.
    match = _JAVA_UUID.fullmatch(data)
    groups = [int(group, 16) for group in match.groups()] if match else []
    if not groups or max(groups) > _LONG_MAX:
        raise SerializationError("UUIDs expects text such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6.")
    number = 0
    for group, width in zip(groups, _JAVA_UUID_WIDTHS, strict=True):
        number = number << width | group & (1 << width) - 1
    return UUID(int=number)


class UUIDs(Serde[UUID]):
    """A UUID as 36 characters of text, and what `uuid.UUID` means: `UUIDs().serialize(UUID(int=0))[:9] == b"00000000-"`."""

    identity = True
    serialize: Callable[[UUID], bytes] = staticmethod(_write_uuid)
    deserialize: Callable[[bytes], UUID] = staticmethod(_read_uuid)


_BYTE_OF_BOOLEAN = {False: b"\x00", True: b"\x01"}
_BOOLEAN_OF_BYTE = {b"\x00": False, b"\x01": True}


def _write_boolean(value: bool) -> bytes:
    try:
        return _BYTE_OF_BOOLEAN[value]
    except (KeyError, TypeError) as error:
        raise SerializationError(f"Boolean expects bool, got {type(value).__name__}.") from error


def _read_boolean(data: bytes) -> bool:
    try:
        return _BOOLEAN_OF_BYTE[data]
    except KeyError as error:
        raise SerializationError(f"Boolean expects one byte, 0 or 1, got {data[:4].hex(' ') or 'nothing'}.") from error


class Boolean(Serde[bool]):
    r"""One byte, 0 or 1, and what `bool` means: `Boolean().serialize(True) == b"\x01"`."""

    identity = True
    is_canonical = True
    serialize: Callable[[bool], bytes] = staticmethod(_write_boolean)
    deserialize: Callable[[bytes], bool] = staticmethod(_read_boolean)


def _write_void(value: None) -> bytes:
    raise SerializationError(f"Void expects None, got {type(value).__name__}.")


def _read_void(data: bytes) -> None:
    raise SerializationError(f"Void expects null, got {len(data)} bytes.")


class Void(Serde[None]):
    """Always null, as for topics without keys: `Void().deserialize(b"")` raises `SerializationError`."""

    identity = True
    is_canonical = True
    serialize: Callable[[None], bytes] = staticmethod(_write_void)
    deserialize: Callable[[bytes], None] = staticmethod(_read_void)
