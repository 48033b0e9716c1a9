"""Keys as text and values as JSON: how an HTTP query names a key, and how an answer shows what a store has.

Where the serde allows it, bytes become JSON without Python objects in between, so that a point read takes microseconds.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from penstock.epochs.columns import shown
from penstock.errors import QueryError, SerializationError
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
    Serde,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
)

LONGEST_KEY = 32_768
"""The most characters that a key in a query may have."""

BASE64 = "base64:"
"""The prefix of a key that is given as bytes, because text cannot express it."""

_INT = re.compile(r"-?[0-9]{1,19}")
_MOST_DIGITS = 20
_BOOLEANS = {"true": True, "false": False}
_encode = msgspec.json.Encoder(enc_hook=shown).encode


def encoded(value: Any) -> bytes:
    """Encode a value as JSON; a value that JSON cannot express becomes the text that Python prints for it."""
    try:
        return _encode(value)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return _encode(ascii(value))


def json_of(serde: Serde[Any]) -> Callable[[bytes], bytes]:
    """Return a function from the bytes that a serde writes to JSON; bytes that the serde cannot read become base64."""
    if type(serde) is Json:
        return bytes
    if isinstance(serde, (Int16, Int32, Int64)):
        read = serde.deserialize
        return _or_base64(lambda data: b"%d" % read(data))
    if isinstance(serde, Bytes):
        return lambda data: b'"%s"' % b64encode(data)
    if isinstance(serde, (TimeWindowed, SessionWindowed)):
        inner, deserialize = serde.inner, serde.deserialize
        return _or_base64(lambda data: _windowed(inner, deserialize(data)))
    deserialize = serde.deserialize
    return _or_base64(lambda data: encoded(deserialize(data)))


def _windowed(inner: Serde[Any], key: Windowed[Any]) -> bytes:
    shown_key = json_of(inner)(inner.serialize(key.key))
    return b'{"key":%s,"start":%d,"end":%d}' % (shown_key, key.start, key.end)


def _or_base64(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def converted(data: bytes) -> bytes:
        try:
            return convert(data)
        except SerializationError:
            return b'"%s%s"' % (BASE64.encode(), b64encode(data))

    return converted


def key_of(serde: Serde[Any]) -> Callable[[str], bytes]:
    """Return a function from a key's text to its bytes: a string as it is, a number as digits, else JSON; or `base64:…`."""
    if isinstance(serde, String):
        return _bounded(_text)
    parse, serialize = _parser(serde), serde.serialize

    def read(text: str) -> bytes:
        if text.startswith(BASE64):
            try:
                return b64decode(text[len(BASE64) :], validate=True)
            except ValueError:
                raise QueryError(f"Invalid key {text[:50]!r}: what follows {BASE64!r} is not base64.") from None
        try:
            return serialize(parse(text))
        except (ValueError, TypeError, msgspec.MsgspecError, RecursionError) as error:  # a SerializationError is one too
            raise QueryError(f"Invalid key {text[:50]!r} for {serde!r}: {error}") from None

    return _bounded(read)


def prefix_of(serde: Serde[Any]) -> Callable[[str], bytes]:
    """Return a function from a prefix's text to its bytes. Only strings and bytes have prefixes in text."""
    if isinstance(serde, (String, Bytes)):
        return key_of(serde)

    def read(text: str) -> bytes:
        if not text.startswith(BASE64):
            raise QueryError(f"Invalid prefix {text[:50]!r}: a prefix for {serde!r} must be given as bytes ('{BASE64}…').")
        return key_of(Bytes())(text)

    return read


def _bounded(read: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def bounded(text: str) -> bytes:
        if len(text) > LONGEST_KEY:
            raise QueryError(f"The key has {len(text)} characters; at most {LONGEST_KEY} are allowed.")
        return read(text)

    return bounded


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise QueryError(f"Invalid text {text[:50]!r}: it has an unpaired surrogate.") from None


def _parser(serde: Serde[Any]) -> Callable[[str], Any]:
    if isinstance(serde, (Int16, Int32, Int64)):
        return _whole
    if isinstance(serde, (Float32, Float64)):
        return float
    if isinstance(serde, Boolean):
        return _boolean
    if isinstance(serde, UUIDs):
        return UUID
    if isinstance(serde, Bytes):
        return _text
    if isinstance(serde, (TimeWindowed, SessionWindowed)):
        return lambda text: _windowed_key(serde.inner, strict_json(text))
    if isinstance(serde, List):
        return strict_json
    if isinstance(serde, (Json, MsgPack)):
        return strict_json if serde.of is Any else _document_parser(serde.of)
    return _only_base64


def _document_parser(of: Any) -> Callable[[str], Any]:
    deserialize = Json(of).deserialize
    return lambda text: deserialize(_text(text))


def _whole(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError("expected a whole number")
    return int(text)


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("expected true or false")
    return _BOOLEANS[text]


def _windowed_key(inner: Serde[Any], given: Any) -> Windowed[Any]:
    if not isinstance(given, dict) or given.keys() != {"key", "start", "end"}:
        raise ValueError('expected {"key": …, "start": …, "end": …}')
    key = given["key"] if isinstance(given["key"], str) else json.dumps(given["key"])
    return Windowed(inner.deserialize(key_of(inner)(key)), given["start"], given["end"])


def _only_base64(text: str) -> NoReturn:
    raise ValueError(f"this serde has no text form; give the key as bytes ('{BASE64}…')")


def strict_json(text: str | bytes) -> Any:
    """Parse JSON that has only one meaning: no duplicate names, no NaN, no overlong numbers, no unpaired surrogates."""
    try:
        value = json.loads(
            text, object_pairs_hook=_once_each, parse_constant=_not_json, parse_float=_finite, parse_int=_not_endless
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise QueryError(f"Invalid or ambiguous JSON: {str(error)[:100]}") from None
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name in an object")
    return found


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("number too large")
    return number


def _not_endless(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("number too long")
    return int(text)
